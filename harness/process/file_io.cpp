#include "harness/process/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace harness {
namespace {

void write_all(int fd, std::string_view content, const std::filesystem::path& path) {
  while (!content.empty()) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n > 0)
      content.remove_prefix(static_cast<size_t>(n));
    else if (errno != EINTR)
      throw_file_error(path, "write", errno);
  }
}

void write_synced(const std::filesystem::path& path, std::string_view content) {
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file) throw_file_error(path, "create", errno);
  write_all(file.get(), content, path);
  if (::fsync(file.get()) != 0) throw_file_error(path, "sync", errno);
}

}  // namespace

void throw_file_error(const std::filesystem::path& path, const char* doing, int error) {
  const auto text =
      std::string("cannot ") + doing + " " + path.string() + ": " + std::strerror(error);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG)
    throw DiskFull(text + "; make room and continue with --resume");
  throw FileError(text);
}

std::string read_file(const std::filesystem::path& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) throw_file_error(path, "open", errno);
  std::string content;
  char block[1 << 16];
  while (true) {
    const ssize_t n = ::read(file.get(), block, sizeof block);
    if (n > 0) content.append(block, static_cast<size_t>(n));
    if (n == 0) return content;
    if (n < 0 && errno != EINTR) throw_file_error(path, "read", errno);
  }
}

void write_file_atomic(const std::filesystem::path& path, std::string_view content) {
  auto temporary = path;
  temporary += ".tmp";
  try {
    write_synced(temporary, content);
    if (::rename(temporary.c_str(), path.c_str()) != 0) throw_file_error(path, "replace", errno);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_path(path.parent_path());
}

Fd create_append(const std::filesystem::path& path) {
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644));
  if (!file) throw_file_error(path, "create", errno);
  return file;
}

void sync_path(const std::filesystem::path& path) {
  const Fd file(::open(path.empty() ? "." : path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file || ::fsync(file.get()) != 0) throw_file_error(path, "sync", errno);
}

uint64_t free_bytes(const std::filesystem::path& path) {
  struct statvfs facts{};
  if (::statvfs(path.c_str(), &facts) != 0) return 0;
  return static_cast<uint64_t>(facts.f_bavail) * facts.f_frsize;
}

}  // namespace harness
