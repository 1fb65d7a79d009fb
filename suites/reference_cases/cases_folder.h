#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <vector>

#include "base/testing/paths.h"

namespace suites {

/// One test a *.safetensors file of the cases folder, NSA_CASES_DIR or ../shared/cases beside the
/// source tree; returns the program's exit status. Without the folder nothing runs: the program
/// prints that, and the status is 77. A folder without cases is a failure.
inline int run_case_tests(
    const char* suite, const std::function<::testing::Test*(const std::filesystem::path&)>& make) {
  namespace fs = std::filesystem;
  const char* given = std::getenv("NSA_CASES_DIR");
  const fs::path folder =
      given ? fs::path(given) : fs::path(base::source_dir()) / "../shared/cases";
  if (!fs::is_directory(folder)) {
    std::printf("%s: cases folder absent: not run\n", folder.c_str());
    return 77;
  }
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  if (files.empty()) {
    std::printf("%s: no *.safetensors in the cases folder\n", folder.c_str());
    return 1;
  }
  std::ranges::sort(files);
  for (const auto& path : files)
    ::testing::RegisterTest(suite, path.stem().c_str(), nullptr, nullptr, path.filename().c_str(),
                            0, [path, make]() { return make(path); });
  return RUN_ALL_TESTS();
}

}  // namespace suites
