#include "harness/process/os/fd.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "harness/schema/error.h"

namespace harness {

void Fd::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw Error(std::string("pipe: ") + std::strerror(errno) + "; raise the limit of open files");
  Fd low_read(ends[0]), low_write(ends[1]);
  Pipe pipe{Fd(::fcntl(ends[0], F_DUPFD_CLOEXEC, 10)), Fd(::fcntl(ends[1], F_DUPFD_CLOEXEC, 10))};
  if (!pipe.read || !pipe.write)
    throw Error(std::string("pipe: ") + std::strerror(errno) + "; raise the limit of open files");
  return pipe;
}

void set_nonblocking(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

}  // namespace harness
