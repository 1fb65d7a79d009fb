#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/testing/paths.h"
#include "harness/cli/options.h"
#include "harness/cli/rendering/rendering.h"
#include "harness/evidence/bundle.h"
#include "harness/evidence/mini_run.h"
#include "harness/schema/error.h"

/// For the tests of this folder: commands are called as main calls them.
namespace harness::cli {

/// What a command printed and returned.
struct Printed {
  int exit_code = 0;
  std::string out, err;
};

template <class Command>
Printed printed(Command command, const Options& options) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Printed result;
  try {
    result.exit_code = command(options);
  } catch (...) {
    testing::internal::GetCapturedStdout();
    testing::internal::GetCapturedStderr();
    throw;
  }
  std::fflush(stdout);
  result.out = testing::internal::GetCapturedStdout();
  result.err = testing::internal::GetCapturedStderr();
  return result;
}

/// The text of the ConfigError that `function` ends with; empty: it ends with none.
template <class Function>
std::string error_of(Function function) {
  try {
    function();
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "";
}

/// A finished run of invented numbers whose reports are those of the program.
inline Written finish_run(const std::filesystem::path& dir, const MiniRun& injected = {}) {
  write_mini_run(dir, injected);
  return write_bundle(dir, [](const Results& results) { return render_reports(results); });
}

/// The working directory for the length of a test.
class WorkingDir {
 public:
  explicit WorkingDir(const std::filesystem::path& dir) : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(dir);
  }
  ~WorkingDir() { std::filesystem::current_path(before_); }
  WorkingDir(const WorkingDir&) = delete;
  WorkingDir& operator=(const WorkingDir&) = delete;

 private:
  std::filesystem::path before_;
};

/// configs/ of the checkout.
inline std::string shipped_configs() { return base::source_dir() + "/configs"; }

}  // namespace harness::cli
