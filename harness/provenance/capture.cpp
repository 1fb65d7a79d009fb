#include "harness/provenance/capture.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "base/loader/search_path.h"
#include "harness/process/os/proc_scan.h"

extern char** environ;

namespace harness {
namespace {

using Clock = std::chrono::steady_clock;

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    std::array<int, 2> ends{-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC) == 0) read = ends[0], write = ends[1];
  }
  ~Pipe() { close_read(), close_write(); }
  void close_read() {
    if (read >= 0) ::close(std::exchange(read, -1));
  }
  void close_write() {
    if (write >= 0) ::close(std::exchange(write, -1));
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
};

/// The environment of this process with `added` in front, so that the additions win.
std::vector<std::string> environment_with(const CaptureOptions& options) {
  std::vector<std::string> all;
  for (const auto& [name, value] : options.env) all.push_back(name + "=" + value);
  for (char** e = environ; *e != nullptr && !options.only_env; ++e) {
    const std::string entry = *e;
    const std::string name = entry.substr(0, entry.find('='));
    bool replaced = !options.without_prefix.empty() && entry.starts_with(options.without_prefix);
    for (const auto& [given, value] : options.env) replaced |= name == given;
    const auto value = base::inherited_value(
        name, std::string_view(entry).substr(std::min(name.size() + 1, entry.size())));
    if (!replaced && value) all.push_back(name + "=" + *value);
  }
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

int spawn(std::vector<std::string> argv, const CaptureOptions& options, int input, int output,
          pid_t& pid) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input, 0);
  posix_spawn_file_actions_adddup2(&actions, output, 1);
  if (options.with_stderr)
    posix_spawn_file_actions_adddup2(&actions, output, 2);
  else
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  if (options.own_group) {
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  }
  std::vector<std::string> env = environment_with(options);
  const int error = ::posix_spawnp(&pid, argv[0].c_str(), &actions, &attributes,
                                   pointers(argv).data(), pointers(env).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

/// Whether the program has ended; it stays a zombie, so that its process group keeps its id.
bool has_ended(pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid;
}

/// Reads until the program closes its output, or has ended and nothing more comes from what it left
/// behind; false when the time is over first.
bool read_all(pid_t pid, int fd, Clock::time_point end, size_t max_out, std::string& out) {
  std::array<char, 4096> buffer;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    pollfd waiting{fd, POLLIN, 0};
    if (left.count() <= 0) return false;
    const bool ended = has_ended(pid);
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::min<int64_t>(left.count(), 20)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return false;
    if (ready == 0 && ended) return true;
    if (ready == 0) continue;
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return true;
    out.append(buffer.data(), std::min(static_cast<size_t>(n), max_out - out.size()));
  }
}

int exit_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/// The input is small (a line of JSON) and is put into an unnamed file, so that no write can block.
int input_file(const std::string& text) {
  std::FILE* file = std::tmpfile();
  if (file == nullptr) return ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const bool whole = std::fwrite(text.data(), 1, text.size(), file) == text.size() &&
                     std::fseek(file, 0, SEEK_SET) == 0;
  const int fd = whole ? ::fcntl(::fileno(file), F_DUPFD_CLOEXEC, 3) : -1;
  std::fclose(file);
  return fd;
}

/// Waits for the end of a program that has closed its output, and ends what it left in its process
/// group; false when the time is over first.
bool reap(pid_t pid, Clock::time_point end, int& status) {
  while (true) {
    if (has_ended(pid)) {
      ::kill(-pid, SIGKILL);
      ::waitpid(pid, &status, 0);
      return true;
    }
    if (Clock::now() > end) return false;
    ::poll(nullptr, 0, 1);
  }
}

std::string new_marker() {
  static std::atomic<int> count = 0;
  return "capture|" + std::to_string(::getpid()) + "|" + std::to_string(count++);
}

}  // namespace

Captured capture(const std::vector<std::string>& argv, const CaptureOptions& options) {
  if (options.whole_tree) {
    CaptureOptions marked = options;
    marked.whole_tree = false;
    const std::string marker = new_marker();
    marked.env.emplace_back(kGroupVariable, marker);
    Captured result = capture(argv, marked);
    kill_group({.marker = marker}, 1);
    return result;
  }
  Captured result;
  Pipe output;
  const int input = input_file(options.input);
  if (input < 0) {
    result.problem = argv[0] + " got no input: no room in the folder for temporary files";
    return result;
  }
  pid_t pid = -1;
  const int error = spawn(argv, options, input, output.write, pid);
  ::close(input);
  output.close_write();
  if (error != 0) {
    result.problem = argv[0] + " cannot be started: " + std::strerror(error);
    return result;
  }
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(options.timeout_s));
  int status = 0;
  if (read_all(pid, output.read, end, options.max_out, result.out) && reap(pid, end, status)) {
    result.exit = exit_of(status);
    return result;
  }
  ::kill(options.own_group ? -pid : pid, SIGKILL);
  result.problem = fmt::format("{} did not end within {} s", argv[0], options.timeout_s);
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return result;
}

}  // namespace harness
