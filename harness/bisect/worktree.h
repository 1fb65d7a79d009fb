#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "harness/provenance/capture.h"

namespace harness::bisect {

/// Runs git in `where`; standard error joins the output.
Captured git(const std::filesystem::path& where, std::vector<std::string> arguments);

/// Output of a git command that must succeed. Throws Error with what git reports.
std::string git_output(const std::filesystem::path& where,
                       const std::vector<std::string>& arguments);

/// Leaves at `tree` a worktree of `repository` at `commit`, without a search. One that an
/// interrupted search left is taken over with its builds; one that a killed git left unfinished is
/// made anew. Throws ConfigError where anything else stands there: it is not touched.
void make_worktree(const std::filesystem::path& repository, const std::filesystem::path& tree,
                   const std::string& commit);

}  // namespace harness::bisect
