#include "harness/process/os/spawn.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "base/loader/search_path.h"

extern char** environ;

namespace harness {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> list;
  for (const auto& s : strings) list.push_back(const_cast<char*>(s.c_str()));
  list.push_back(nullptr);
  return list;
}

/// Everything the child needs, made before fork: between fork and exec only async-signal-safe calls
/// are allowed.
struct ChildPlan {
  std::vector<char*> argv, env;
  int in, out, err, result, failure;
  pid_t parent;
};

[[noreturn]] void report_and_exit(int failure_fd) {
  const int error = errno;
  [[maybe_unused]] const auto n = ::write(failure_fd, &error, sizeof error);
  ::_exit(127);
}

[[noreturn]] void become_program(const ChildPlan& plan) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.parent) ::_exit(127);  // the engine died before the line above
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int sig : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGXFSZ, SIGUSR1, SIGCHLD})
    ::signal(sig, SIG_DFL);
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  if (::dup2(plan.in, 0) < 0 || ::dup2(plan.out, 1) < 0 || ::dup2(plan.err, 2) < 0)
    report_and_exit(plan.failure);
  if (plan.result < 0)
    ::close(3);
  else if (::dup2(plan.result, 3) < 0)
    report_and_exit(plan.failure);
  ::close_range(4, ~0U, CLOSE_RANGE_CLOEXEC);  // what we inherited ourselves is not for workers
  ::execve(plan.argv[0], plan.argv.data(), plan.env.data());
  report_and_exit(plan.failure);
}

/// errno of a failed start, 0 once the program runs (exec closes the pipe).
int start_error(int fd) {
  int error = 0;
  ssize_t n;
  do n = ::read(fd, &error, sizeof error);
  while (n < 0 && errno == EINTR);
  return n == static_cast<ssize_t>(sizeof error) ? error : 0;
}

[[noreturn]] void not_started(const std::string& program, int error) {
  throw NotStarted("cannot start " + program + ": " + std::strerror(error), error);
}

}  // namespace

Child spawn(const SpawnSpec& spec) {
  Pipe in = make_pipe(), out = make_pipe(), err = make_pipe(), failure = make_pipe();
  const Fd result(spec.result_fd < 0 ? -1 : ::fcntl(spec.result_fd, F_DUPFD_CLOEXEC, 10));
  const ChildPlan plan{pointers(spec.argv), pointers(spec.env), in.read.get(),
                       out.write.get(),     err.write.get(),    result.get(),
                       failure.write.get(), ::getpid()};
  Child child;
  child.pid = ::fork();
  if (child.pid == 0) become_program(plan);
  if (child.pid < 0) not_started(spec.argv[0], errno);
  failure.write.reset();
  if (const int error = start_error(failure.read.get())) {
    ::waitpid(child.pid, nullptr, 0);
    not_started(spec.argv[0], error);
  }
  child.pidfd = Fd(static_cast<int>(::syscall(SYS_pidfd_open, child.pid, 0)));
  child.in = std::move(in.write);
  child.out = std::move(out.read);
  child.err = std::move(err.read);
  for (const auto* fd : {&child.in, &child.out, &child.err}) set_nonblocking(fd->get());
  return child;
}

bool env_allowed(const std::string& name) {
  static constexpr auto kNames = std::to_array<std::string_view>(
      {"PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH",
       "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "NVIDIA_VISIBLE_DEVICES"});
  static constexpr auto kPrefixes =
      std::to_array<std::string_view>({"LC_", "NSA_", "CUDA_", "NCCL_", "GLOO_", "PYTORCH_",
                                       "TORCH_", "OMP_", "MKL_", "KMP_", "OPENBLAS_", "NVTX_"});
  for (const auto allowed : kNames)
    if (name == allowed) return true;
  for (const auto prefix : kPrefixes)
    if (name.starts_with(prefix)) return true;
  return false;
}

std::vector<std::string> worker_environment(const std::map<std::string, std::string>& given) {
  std::map<std::string, std::string> chosen = given;
  for (char** entry = environ; *entry != nullptr; entry++) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    if (equals == std::string::npos) continue;
    const auto name = text.substr(0, equals);
    if (!env_allowed(name)) continue;
    if (auto value = base::inherited_value(name, text.substr(equals + 1)))
      chosen.emplace(name, std::move(*value));
  }
  std::vector<std::string> env;
  for (const auto& [name, value] : chosen) env.push_back(name + "=" + value);
  return env;
}

}  // namespace harness
