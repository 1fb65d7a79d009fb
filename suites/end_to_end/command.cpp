#include "suites/end_to_end/command.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace suites::end_to_end {
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

}  // namespace

Outcome run(const std::vector<std::string>& argv, const std::vector<std::string>& environment) {
  std::array<int, 2> channel{};
  if (pipe2(channel.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  const pid_t child = fork();
  if (child == 0) start_child(argv, environment, channel[1]);
  close(channel[1]);
  Outcome outcome;
  std::array<char, 4096> buffer{};
  for (ssize_t n = 0; (n = read(channel[0], buffer.data(), buffer.size())) > 0;)
    outcome.output.append(buffer.data(), static_cast<size_t>(n));
  close(channel[0]);
  int status = 0;
  waitpid(child, &status, 0);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

Outcome validate(std::vector<std::string> args) {
  args.insert(args.begin(), std::string(NSA_BUILD_DIR) + "/bin/nsa-validate");
  return run(args, {"NO_COLOR=1"});
}

std::filesystem::path fresh_dir(const std::string& name) {
  const std::filesystem::path dir = std::filesystem::path(NSA_BUILD_DIR) / "end_to_end" / name;
  std::filesystem::remove_all(dir);
  std::filesystem::create_directories(dir.parent_path());
  return dir;
}

std::string read_file(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace suites::end_to_end
