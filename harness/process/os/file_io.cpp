#include "harness/process/os/file_io.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <string>

#include "harness/schema/error.h"

namespace harness {

void throw_file_error(const std::filesystem::path& path, const char* doing, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  throw Error(std::string("cannot ") + doing + " " + path.string() + ": " + std::strerror(error) +
              (full ? "; make room and continue with --resume" : ""));
}

Fd create_append(const std::filesystem::path& path) {
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644));
  if (!file) throw_file_error(path, "create", errno);
  return file;
}

void sync_path(const std::filesystem::path& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file || ::fsync(file.get()) != 0) throw_file_error(path, "sync", errno);
}

uint64_t free_bytes(const std::filesystem::path& path) {
  struct statvfs facts{};
  if (::statvfs(path.c_str(), &facts) != 0) return std::numeric_limits<uint64_t>::max();
  return static_cast<uint64_t>(facts.f_bavail) * facts.f_frsize;
}

}  // namespace harness
