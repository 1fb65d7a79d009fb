#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace harness {

/// Facts of a git checkout. git is asked for objects and names only: what differs is found by
/// content, so that no variable, setting, index flag or private list of ignored files can hide it.
/// When `known` is false, `problem` is the reason.
struct GitFacts {
  bool known = false;
  std::string problem;
  std::string commit;  ///< 40 hex digits
  std::string branch;  ///< "HEAD" when detached
  std::vector<std::string>
      dirty;  ///< changed files, and untracked ones that no .gitignore names; sorted
};

/// Asks `git` about the checkout that holds `folder`.
GitFacts git_facts(const std::filesystem::path& folder);

/// Files that differ between `base` (a commit or branch) and the working tree below `folder`: since
/// the commit where both parted, uncommitted and untracked ones included; sorted. `problem`
/// is the reason when there is no list.
struct ChangedFiles {
  std::string problem = {};
  std::string parted = {};  ///< the commit where both parted
  std::vector<std::string> paths = {};
};
ChangedFiles changed_since(const std::filesystem::path& folder, const std::string& base);

/// Content of a file in a commit; none when the commit lacks it or git does not answer.
std::optional<std::string> file_in_commit(const std::filesystem::path& folder,
                                          const std::string& commit, const std::string& path);

/// Lines of a file that differ between a commit and the working tree, as "-OLD" and "+NEW".
std::vector<std::string> changed_lines(const std::filesystem::path& folder,
                                       const std::string& commit, const std::string& path);

/// {known, problem, commit, branch, clean, dirty}
nlohmann::json to_json(const GitFacts& facts);

/// The source tree a program belongs to: the first folder at or above `start` that holds
/// CMakeLists.txt, nsa/ and harness/. None for an installed tree.
std::optional<std::filesystem::path> find_checkout(const std::filesystem::path& start);

/// The checkout that owns a linked worktree (`git worktree add`), and its .venv with it; any other
/// checkout itself.
std::filesystem::path main_worktree(const std::filesystem::path& checkout);

/// Folder of the running program.
std::filesystem::path program_folder();

/// Checkout of the running program, else of the working directory.
std::optional<std::filesystem::path> this_checkout();

}  // namespace harness
