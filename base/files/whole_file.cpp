#include "base/files/whole_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace base {
namespace {

/// Opens `path` with `flags`, writes `bytes` and flushes them to the disk.
void write_and_sync(const std::filesystem::path& path, int flags, std::string_view bytes) {
  int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, 0644);
  if (fd < 0) throw FileError("create", path, errno);
  try {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw FileError("write", path, errno);
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    // EINVAL: `path` is no file that can be flushed.
    if (::fsync(fd) != 0 && errno != EINVAL) throw FileError("sync", path, errno);
    if (::close(std::exchange(fd, -1)) != 0) throw FileError("write", path, errno);
  } catch (...) {
    if (fd >= 0) ::close(fd);
    throw;
  }
}

/// A device or a pipe: it takes bytes, and no file may come in its place.
bool is_device(const std::filesystem::path& path) {
  std::error_code unknown;
  return std::filesystem::is_other(std::filesystem::status(path, unknown));
}

}  // namespace

FileError::FileError(const char* doing, const std::filesystem::path& path, int code)
    : std::runtime_error(std::string("cannot ") + doing + " " + path.string() + ": " +
                         std::strerror(code)),
      code_(code) {}

void write_whole_file(const std::filesystem::path& path, std::string_view bytes) {
  if (is_device(path)) return write_and_sync(path, 0, bytes);
  std::filesystem::path part = path;
  part += kPartSuffix;
  try {
    write_and_sync(part, O_CREAT | O_TRUNC, bytes);
    if (::rename(part.c_str(), path.c_str()) != 0) throw FileError("replace", path, errno);
  } catch (...) {
    ::unlink(part.c_str());
    throw;
  }
}

}  // namespace base
