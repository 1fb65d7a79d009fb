#include "harness/evidence/storage/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "harness/schema/error.h"

namespace harness {
namespace {

[[noreturn]] void fail(const char* what, const std::filesystem::path& path, int error) {
  throw Error(std::string("cannot ") + what + " " + path.string() + ": " + std::strerror(error) +
              (error == ENOSPC ? "; free disk space and use --resume" : ""));
}

void write_all(int fd, std::string_view bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("write", path, errno);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  if (::fsync(fd) != 0 && errno != EINVAL) fail("sync", path, errno);
}

}  // namespace

std::string read_bytes(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    throw Error("cannot read " + path.string() + ": " +
                (error ? error.message() : "it is not a regular file"));
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) fail("read", path, errno ? errno : EIO);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) fail("read", path, errno ? errno : EIO);
  return bytes;
}

void write_bytes(const std::filesystem::path& path, std::string_view bytes) {
  std::filesystem::path part = path;
  part += ".part";
  const int fd = ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) fail("create", part, errno);
  try {
    write_all(fd, bytes, part);
  } catch (...) {
    ::close(fd);
    ::unlink(part.c_str());
    throw;
  }
  ::close(fd);
  if (::rename(part.c_str(), path.c_str()) != 0) {
    const int reason = errno;
    ::unlink(part.c_str());
    fail("replace", path, reason);
  }
}

}  // namespace harness
