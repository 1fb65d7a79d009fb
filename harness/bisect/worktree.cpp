#include "harness/bisect/worktree.h"

#include <fstream>
#include <iterator>

#include "harness/schema/error.h"

namespace harness::bisect {
namespace fs = std::filesystem;
namespace {

constexpr double kGitSeconds = 600;

enum class Standing { kNothing, kWorktree, kUnfinished, kForeign };

/// The path that `git rev-parse OPTION` names in `folder`; empty where it names none.
fs::path git_path(const fs::path& folder, const char* option) {
  const Captured answer = capture({"git", "-C", folder.string(), "rev-parse", option},
                                  {.timeout_s = kGitSeconds, .env = {{"LC_ALL", "C"}}});
  if (!answer.ok()) return {};
  std::error_code error;
  fs::path path = fs::canonical(folder / answer.out.substr(0, answer.out.find('\n')), error);
  return error ? fs::path() : path;
}

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Whether a worktree of the repository stood or began at `tree`: its file .git leads there, or is
/// itself half-written and alone.
bool is_unfinished(const fs::path& tree, const fs::path& worktrees) {
  const fs::path link = tree / ".git";
  std::error_code error;
  if (!fs::is_regular_file(fs::symlink_status(link, error))) return false;
  if (std::distance(fs::directory_iterator(tree), {}) == 1) return true;
  const std::string begin = "gitdir: ", text = text_of(link);
  if (!text.starts_with(begin)) return false;
  const std::string path = text.substr(begin.size(), text.find('\n') - begin.size());
  return fs::weakly_canonical(tree / path, error).parent_path() == worktrees;
}

Standing standing_of(const fs::path& repository, const fs::path& tree) {
  if (!fs::exists(tree) || fs::is_empty(tree)) return Standing::kNothing;
  const fs::path here = fs::canonical(tree);
  const fs::path worktrees = git_path(repository, "--git-common-dir") / "worktrees";
  // In a folder that is no checkout of its own, git finds the user's, above it.
  if (git_path(tree, "--show-toplevel") != here)
    return is_unfinished(tree, worktrees) ? Standing::kUnfinished : Standing::kForeign;
  const bool linked = git_path(tree, "--git-dir").parent_path() == worktrees;
  return linked && git_path(repository, "--show-toplevel") != here ? Standing::kWorktree
                                                                   : Standing::kForeign;
}

/// False: git was killed in it, when it made it or later (index.lock).
bool taken_over(const fs::path& tree, const std::string& commit) {
  // git's own lock, until a new worktree is whole.
  if (text_of(git_path(tree, "--git-dir") / "locked").starts_with("initializing")) return false;
  return git(tree, {"checkout", "--quiet", "--detach", "--force", commit}).ok() &&
         git(tree, {"bisect", "reset", commit}).ok();
}

/// The file .git goes last: by it the next call knows what a kill in here leaves.
void remove_unfinished(const fs::path& tree) try {
  for (const auto& entry : fs::directory_iterator(tree))
    if (entry.path().filename() != ".git") fs::remove_all(entry.path());
  fs::remove_all(tree);
} catch (const fs::filesystem_error& error) {
  throw Error("bisect: the unfinished worktree " + tree.string() +
              " cannot be removed: " + error.code().message() + "; remove it by hand");
}

}  // namespace

Captured git(const fs::path& where, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"git", "-C", where.string()});
  return capture(arguments, {.timeout_s = kGitSeconds,
                             .with_stderr = true,
                             .env = {{"LC_ALL", "C"}},
                             .max_out = 1 << 24});
}

std::string git_output(const fs::path& where, const std::vector<std::string>& arguments) {
  const Captured answer = git(where, arguments);
  if (!answer.ok())
    throw Error("git " + arguments.front() +
                " failed: " + (answer.problem.empty() ? answer.out : answer.problem));
  return answer.out;
}

void make_worktree(const fs::path& repository, const fs::path& tree, const std::string& commit) {
  const Standing standing = standing_of(repository, tree);
  if (standing == Standing::kForeign)
    throw ConfigError("bisect: " + tree.string() +
                      " is no worktree that a search of this repository made; name another folder "
                      "with --work, or remove it");
  if (standing == Standing::kWorktree && taken_over(tree, commit)) return;
  if (standing != Standing::kNothing) remove_unfinished(tree);
  git(repository, {"worktree", "prune"});
  // Twice: what a killed git left under this name is locked.
  git_output(repository,
             {"worktree", "add", "--detach", "--force", "--force", tree.string(), commit});
}

}  // namespace harness::bisect
