#include "suites/end_to_end/command.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "base/testing/paths.h"

namespace suites::end_to_end {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void start_child(const std::vector<std::string>& argv,
                              const std::vector<std::string>& environment, int output) {
  dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  for (const std::string& pair : environment) putenv(const_cast<char*>(pair.c_str()));
  std::vector<char*> args;
  for (const std::string& arg : argv) args.push_back(const_cast<char*>(arg.c_str()));
  args.push_back(nullptr);
  execv(args[0], args.data());
  _exit(127);
}

void pause_shortly() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

}  // namespace

Running::Running(const std::vector<std::string>& argv,
                 const std::vector<std::string>& environment) {
  std::array<int, 2> channel{};
  if (pipe2(channel.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) start_child(argv, environment, channel[1]);
  close(channel[1]);
  output_ = channel[0];
}

void Running::send(int signal) const { kill(pid_, signal); }

bool Running::ended() const {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
         info.si_pid == pid_;
}

pid_t Running::child_now(const std::string& name) const {
  std::error_code gone;
  for (const auto& task : fs::directory_iterator("/proc/" + std::to_string(pid_) + "/task", gone)) {
    std::istringstream children(read_file(task.path() / "children"));
    for (pid_t pid = 0; children >> pid;)
      if (read_file("/proc/" + std::to_string(pid) + "/comm") == name + "\n") return pid;
  }
  return 0;
}

pid_t Running::child(const std::string& name) const {
  pid_t found = 0;
  while (!ended() && (found = child_now(name)) == 0) pause_shortly();
  return found;
}

bool Running::wait_for(const fs::path& path) const {
  while (!fs::exists(path)) {
    if (ended()) return false;
    pause_shortly();
  }
  return true;
}

Outcome Running::finish() {
  Outcome outcome;
  std::array<char, 4096> buffer{};
  for (ssize_t n = 0; (n = read(output_, buffer.data(), buffer.size())) > 0;)
    outcome.output.append(buffer.data(), static_cast<size_t>(n));
  close(output_);
  int status = 0;
  waitpid(pid_, &status, 0);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

Outcome run(const std::vector<std::string>& argv, const std::vector<std::string>& environment) {
  return Running(argv, environment).finish();
}

std::string program() { return base::build_dir() + "/bin/nsa-validate"; }

Outcome validate(std::vector<std::string> args, const std::vector<std::string>& environment) {
  args.insert(args.begin(), program());
  return run(args, environment);
}

/// Below a folder of this test program: others of its kind run beside it.
fs::path fresh_dir(const std::string& name) {
  static const std::string self = fs::read_symlink("/proc/self/exe").filename().string();
  const fs::path dir = fs::path(base::build_dir()) / "end_to_end" / self / name;
  fs::remove_all(dir);
  fs::create_directories(dir.parent_path());
  return dir;
}

std::string read_file(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void write_file(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace suites::end_to_end
