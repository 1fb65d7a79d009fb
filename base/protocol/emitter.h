#pragma once
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "base/protocol/messages.h"

namespace base::protocol {

/// Writes the lines of a worker: every call appends one to the result channel with one write.
/// Thread-safe.
/// A process that is killed leaves whole lines and at most one half line at the end; the next one
/// begins behind it, on a line of its own.
///
///   Emitter emitter(result_path(argc, argv));
///   emitter.hello({.program = "nsa-worker", .build_id = ...});
///   emitter.sample({.case_id = "v2", .series = "v2_ms", .value = 0.12, .unit = "ms"});
///   emitter.end_case("v2");
///   emitter.done();
///
/// Numbers that are not finite become null, with the reason beside it. Throws Error when the
/// channel cannot be opened or written (a full disk), naming it.
class Emitter {
 public:
  enum class Existing { kRefuse, kAppend };

  /// Appends to the file, which must be new or empty unless `existing` allows more lines (a resumed
  /// training run); with an empty path to descriptor 3, inherited from the engine.
  explicit Emitter(const std::string& path = "", Existing existing = Existing::kRefuse)
      : name_(path.empty() ? "descriptor 3" : path) {
    if (path.empty()) {
      fd_ = 3;
      if (::fcntl(fd_, F_SETFD, FD_CLOEXEC) !=
          0)  // a child of the worker must not hold the channel
        throw Error("result channel: descriptor 3 is not open; start by hand with --result PATH");
      return;
    }
    fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd_ < 0) fail("cannot be opened", "; name another file with --result");
    struct stat facts{};
    if (existing == Existing::kRefuse && ::fstat(fd_, &facts) == 0 && S_ISREG(facts.st_mode) &&
        facts.st_size > 0) {
      ::close(fd_);
      throw Error("result channel: " + name_ +
                  " must be new or empty; remove it or name another file");
    }
    half_line_ = ends_in_half_line(path);
  }
  Emitter(const Emitter&) = delete;
  Emitter& operator=(const Emitter&) = delete;
  ~Emitter() {
    if (fd_ > 3) ::close(fd_);
  }

  void hello(Hello line) {
    line.pid = ::getpid();
    emit(line);
  }
  void beat(const Beat& line) { emit(line); }
  void check(const Check& line) { emit(line); }
  void sample(const Sample& line) { emit(line); }
  void metric(const Metric& line) { emit(line); }
  void table(const Table& line) { emit(line); }
  void finding(const Finding& line) { emit(line); }
  void artifact(const std::string& path, const std::string& media) {
    emit(Artifact{.path = path, .media = media});
  }
  /// The case ended well.
  void end_case(const std::string& id) { emit(CaseEnd{.case_id = id}, true); }
  /// The case failed; its samples are void.
  void fail_case(const std::string& id, const std::string& reason) {
    emit(CaseEnd{.case_id = id, .status = "failed", .reason = reason}, true);
  }
  /// The case cannot be decided: `deferred` where the machine lacks something, `partial` where what
  /// was recorded is incomplete. Its figures are void. `reason` is "CAUSE: text".
  void end_case_undecided(const std::string& id, const std::string& status,
                          const std::string& reason) {
    emit(CaseEnd{.case_id = id, .status = status, .reason = reason}, true);
  }
  /// The last line. The worker then exits 0: a failed case is data, not an exit status.
  void done() { emit(Done{.lines = lines()}, true); }

  /// Lines written so far.
  int64_t lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

  /// Seconds since the last line; since the construction where there is none.
  double silence_s() const {
    const std::lock_guard lock(mutex_);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - last_).count();
  }

 private:
  template <class Line>
  void emit(const Line& line, bool to_disk = false) {
    auto object = to_object(line);
    const auto reason = refuse_non_finite(object);
    if (!reason.empty()) {
      const auto given = object.value("reason", std::string());
      object["reason"] = given.empty() ? reason : given + "; " + reason;
    }
    object["type"] = std::string(Line::kType);
    const std::lock_guard lock(mutex_);
    object["t"] = seconds();
    append((std::exchange(half_line_, false) ? "\n" : "") + print_line(object) + "\n");
    lines_++;
    last_ = std::chrono::steady_clock::now();
    if (to_disk) ::fdatasync(fd_);  // not every channel is a file, so a refusal is no error
  }

  /// Seconds since the first line, which is `hello`; to the microsecond.
  double seconds() {
    const auto now = std::chrono::steady_clock::now();
    if (lines_ == 0) start_ = now;
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(now - start_).count();
    return static_cast<double>(us) / 1e6;
  }

  /// Only of a file: nothing is taken out of a pipe.
  static bool ends_in_half_line(const std::string& path) {
    struct stat facts{};
    if (::stat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_size == 0)
      return false;
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    char last = '\n';
    if (fd >= 0 && ::pread(fd, &last, 1, facts.st_size - 1) != 1) last = '\n';
    if (fd >= 0) ::close(fd);
    return last != '\n';
  }

  void append(const std::string& text) {
    size_t at = 0;
    while (at < text.size()) {  // a second round only after a signal or on a disk about to be full
      const ssize_t n = ::write(fd_, text.data() + at, text.size() - at);
      if (n > 0)
        at += static_cast<size_t>(n);
      else if (errno != EINTR)
        fail("cannot be written", "; make room there, then run again");
    }
  }

  [[noreturn]] void fail(const char* what, const char* remedy) const {
    throw Error("result channel: " + name_ + " " + what + ": " + std::strerror(errno) + remedy);
  }

  std::string name_;
  int fd_ = -1;
  bool half_line_ = false;  ///< a process before was killed while it wrote
  mutable std::mutex mutex_;
  int64_t lines_ = 0;
  std::chrono::steady_clock::time_point start_, last_ = std::chrono::steady_clock::now();
};

/// PATH behind `--result` on a command line; empty (descriptor 3) when it is not there.
inline std::string result_path(int argc, char** argv) {
  for (int i = 1; i + 1 < argc; i++)
    if (std::string(argv[i]) == "--result") return argv[i + 1];
  return "";
}

}  // namespace base::protocol
