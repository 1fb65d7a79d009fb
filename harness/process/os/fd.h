#pragma once
#include <utility>

namespace harness {

/// Owns a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_ = -1;
};

/// A pipe with both ends closed on exec and above descriptor 9, out of the way of what a child
/// gets. Throws Error.
struct Pipe {
  Fd read, write;
};
Pipe make_pipe();

void set_nonblocking(int fd);

}  // namespace harness
