#include "harness/process/resident_worker.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string_view>

namespace harness {
namespace {

constexpr int kPollMs = 100;
constexpr size_t kErrorsKept = 4096;

/// Appends what can be read without waiting; false at the end of the stream.
bool read_available(int fd, std::string& text) {
  std::array<char, 4096> bytes;
  while (true) {
    const ssize_t n = ::read(fd, bytes.data(), bytes.size());
    if (n > 0)
      text.append(bytes.data(), static_cast<size_t>(n));
    else if (n == 0)
      return false;
    else if (errno != EINTR)
      return true;
  }
}

}  // namespace

ResidentWorker::ResidentWorker(const std::filesystem::path& program,
                               const std::map<std::string, std::string>& switches)
    : child_(
          spawn({.argv = {program.string(), "--resident"}, .env = worker_environment(switches)})) {}

ResidentWorker::~ResidentWorker() {
  child_.in.reset();  // the end of its input
  ::kill(child_.pid, SIGKILL);
  ::waitpid(child_.pid, nullptr, 0);
}

void ResidentWorker::measure(const std::string& case_line, const std::filesystem::path& result,
                             double timeout_s) {
  send(result.string() + "\n" + case_line + "\n");
  const std::string words = answer(timeout_s);
  if (words != "done") throw Error("the resident worker " + words);
}

void ResidentWorker::send(std::string text) {
  ::signal(SIGPIPE, SIG_IGN);  // a worker that ended is an error of write, not our end
  while (!text.empty()) {
    const ssize_t n = ::write(child_.in.get(), text.data(), text.size());
    if (n > 0) {
      text.erase(0, static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      pollfd room{child_.in.get(), POLLOUT, 0};
      ::poll(&room, 1, kPollMs);
      drain_errors();
    } else if (errno != EINTR) {
      drain_errors();
      throw Error(std::string("the resident worker takes no case: ") + std::strerror(errno) + "; " +
                  errors_);
    }
  }
}

std::string ResidentWorker::answer(double timeout_s) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s);
  while (std::chrono::steady_clock::now() < end) {
    pollfd streams[] = {{child_.out.get(), POLLIN, 0}, {child_.err.get(), POLLIN, 0}};
    ::poll(streams, 2, kPollMs);
    drain_errors();
    const bool open = read_available(child_.out.get(), received_);
    if (const size_t line = received_.find('\n'); line != std::string::npos) {
      std::string words = received_.substr(0, line);
      received_.erase(0, line + 1);
      return words;
    }
    if (!open) return "ended: " + (errors_.empty() ? std::string("without a message") : errors_);
  }
  return "no answer for " + std::to_string(static_cast<int64_t>(timeout_s)) + " s";
}

void ResidentWorker::drain_errors() {
  read_available(child_.err.get(), errors_);
  if (errors_.size() > kErrorsKept) errors_.erase(0, errors_.size() - kErrorsKept);
}

}  // namespace harness
