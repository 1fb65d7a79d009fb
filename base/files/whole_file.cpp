#include "base/files/whole_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace base {
namespace {

void write_and_sync(int fd, std::string_view bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw FileError("write", path, errno);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  // EINVAL: `path` is no file that can be flushed.
  if (::fsync(fd) != 0 && errno != EINVAL) throw FileError("sync", path, errno);
}

}  // namespace

FileError::FileError(const char* doing, const std::filesystem::path& path, int code)
    : std::runtime_error(std::string("cannot ") + doing + " " + path.string() + ": " +
                         std::strerror(code)),
      code_(code) {}

void write_whole_file(const std::filesystem::path& path, std::string_view bytes) {
  std::filesystem::path part = path;
  part += ".part";
  int fd = ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) throw FileError("create", part, errno);
  try {
    write_and_sync(fd, bytes, part);
    if (::close(std::exchange(fd, -1)) != 0) throw FileError("write", part, errno);
    if (::rename(part.c_str(), path.c_str()) != 0) throw FileError("replace", path, errno);
  } catch (...) {
    if (fd >= 0) ::close(fd);
    ::unlink(part.c_str());
    throw;
  }
}

}  // namespace base
