#pragma once
#include <filesystem>
#include <string>
#include <vector>

/// Runs the real programs as a user would and looks at what they leave behind.
namespace suites::end_to_end {

struct Outcome {
  int exit_code = -1;  ///< 128 + signal when it died by one
  std::string output;  ///< standard output and error together
};

/// Runs a program with arguments, without a shell, standard input empty; waits for it.
Outcome run(const std::vector<std::string>& argv, const std::vector<std::string>& environment = {});

/// nsa-validate of this build.
Outcome validate(std::vector<std::string> args);

/// A fresh folder below the build tree, removed first when it exists.
std::filesystem::path fresh_dir(const std::string& name);

std::string read_file(const std::filesystem::path& path);
void write_file(const std::filesystem::path& path, const std::string& text);

}  // namespace suites::end_to_end
