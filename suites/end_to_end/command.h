#pragma once
#include <sys/types.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

/// Runs the real programs as a user would and looks at what they leave behind.
namespace suites::end_to_end {

struct Outcome {
  int exit_code = -1;  ///< 128 + signal when it died by one
  std::string output;  ///< standard output and error together
};

/// A program that was started without a shell, standard input empty. It is waited for by `finish`.
class Running {
 public:
  explicit Running(const std::vector<std::string>& argv,
                   const std::vector<std::string>& environment = {});
  pid_t pid() const { return pid_; }
  void send(int signal) const;
  /// A child process of it called `name`, waited for; 0 when it ended before it had one.
  pid_t child(const std::string& name) const;
  /// The same, without waiting; 0 when it has none now.
  pid_t child_now(const std::string& name) const;
  /// Waits until `path` exists; false when the program ended before.
  bool wait_for(const std::filesystem::path& path) const;
  Outcome finish();

 private:
  bool ended() const;
  pid_t pid_ = -1;
  int output_ = -1;
};

/// Runs a program and waits for it; `environment` holds NAME=VALUE pairs on top of this one's.
Outcome run(const std::vector<std::string>& argv, const std::vector<std::string>& environment = {});

/// The path of nsa-validate of this build.
std::string program();

/// nsa-validate of this build with these arguments.
Outcome validate(std::vector<std::string> args, const std::vector<std::string>& environment = {});

/// A name in the build tree of which nothing is there.
std::filesystem::path fresh_dir(const std::string& name);

/// A runbook of testdata/, by name.
std::string runbook(const std::string& name);

/// A folder of configs like the shipped one, in which kinds that take a fault declare `fault`, and
/// testdata/ lies beside the shipped runbooks.
std::string configs_with_faults();

/// The runbook `from` of testdata/ under the name `name`, every (old, new) text replaced; its path.
std::string changed_runbook(const std::string& from, const std::string& name,
                            const std::vector<std::pair<std::string, std::string>>& changes);

/// One finished run of testdata/mini.json, made at the first call; not to be changed.
const std::filesystem::path& mini_run();

/// A copy of mini_run() that may be damaged.
std::filesystem::path copy_of_mini_run(const std::string& name);

std::string read_file(const std::filesystem::path& path);
void write_file(const std::filesystem::path& path, const std::string& text);

/// results.json of a run folder.
nlohmann::json results(const std::filesystem::path& run);

/// The codes of the findings of a run.
std::vector<std::string> codes(const std::filesystem::path& run);

}  // namespace suites::end_to_end
