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

/// One test a *.safetensors file of the cases folder, NSA_CASES_DIR or that of this folder; returns
/// the program's exit status. A folder that is absent or has no cases is a failure.
inline int run_case_tests(
    const char* suite, const std::function<::testing::Test*(const std::filesystem::path&)>& make) {
  namespace fs = std::filesystem;
  const char* given = std::getenv("NSA_CASES_DIR");
  const fs::path folder =
      given ? fs::path(given) : fs::path(base::source_dir()) / "suites/reference_cases/cases";
  if (!fs::is_directory(folder)) {
    std::printf("%s: the folder of cases is absent; set NSA_CASES_DIR to it, or unset it\n",
                folder.c_str());
    return 1;
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
