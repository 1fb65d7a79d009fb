#include "nsa/tensor_file/replaced_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>

namespace nsa::tensor_file {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

ReplacedFile::ReplacedFile(const fs::path& path) : path_(path) {
  std::error_code ignored;
  constexpr int kMostLinks = 40;
  for (int i = 0; i < kMostLinks && fs::is_symlink(path_, ignored); ++i)  // keep the link
    path_ = path_.parent_path() / fs::read_symlink(path_);
  const fs::file_status status = fs::status(path_, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    fd_ = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    temporary_ = path_;
    temporary_ += ".part-" + std::to_string(getpid());
    fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  }
  if (fd_ < 0) fail("cannot be opened for writing");
}

ReplacedFile::~ReplacedFile() {
  if (fd_ < 0) return;
  close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void ReplacedFile::write(const void* data, size_t bytes) {
  constexpr size_t kMost = size_t{1} << 30;  // one call of the kernel writes at most 2 GiB
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(fd_, next, std::min(bytes, kMost));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail("cannot be written");
    next += written;
    bytes -= static_cast<size_t>(written);
  }
}

void ReplacedFile::commit() {
  if (temporary_.empty()) return;  // a device: nothing to flush or rename
  if (fsync(fd_) != 0) fail("cannot be written");
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot be put in place");
  close(fd_);
  fd_ = -1;
}

}  // namespace nsa::tensor_file
