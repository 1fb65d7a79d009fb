#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "harness/provenance/capture.h"

namespace harness {

/// git with these arguments in `folder`, for tests; it must succeed.
inline void git_in(const std::filesystem::path& folder, const std::vector<std::string>& arguments) {
  std::vector<std::string> argv = {"git",         "-C", folder.string(), "-c",
                                   "user.name=n", "-c", "user.email=e"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  ASSERT_TRUE(capture(argv).ok()) << arguments.front();
}

/// Makes `folder` a checkout whose branch `main` has what lies there as its first commit.
inline void commit_first(const std::filesystem::path& folder) {
  git_in(folder, {"init", "-q", "-b", "main"});
  git_in(folder, {"add", "."});
  git_in(folder, {"commit", "-q", "-m", "first"});
}

}  // namespace harness
