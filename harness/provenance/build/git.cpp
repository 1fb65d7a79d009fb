#include "harness/provenance/build/git.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/provenance/capture.h"

namespace harness {
namespace fs = std::filesystem;
namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// Paths of `git status --porcelain -z`: "XY PATH\0", and for a rename a second "OLD\0".
std::vector<std::string> changed_paths(const std::string& status) {
  std::vector<std::string> paths;
  for (size_t begin = 0; begin < status.size();) {
    const size_t end = std::min(status.find('\0', begin), status.size());
    const std::string item = status.substr(begin, end - begin);
    begin = end + 1;
    if (item.size() < 4) continue;
    paths.push_back(item.substr(3));
    if (item[0] == 'R' || item[0] == 'C')
      begin = std::min(status.find('\0', begin), status.size()) + 1;
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// Another git that comes first in PATH is not asked.
std::string git_program() {
  for (const char* place : {"/usr/bin/git", "/usr/local/bin/git", "/bin/git"})
    if (::access(place, X_OK) == 0) return place;
  return "git";
}

/// Asks git about `folder`, without any variable or setting of the user's that could change the
/// answer. safe.directory: a checkout that another user owns is read, never run from.
Captured ask_git(const fs::path& folder, const std::vector<std::string>& arguments,
                 const std::string& input = "") {
  CaptureOptions options;
  options.input = input;
  options.only_env = true;
  options.max_out = size_t{64} << 20;
  options.env = {{"GIT_OPTIONAL_LOCKS", "0"},        {"GIT_CONFIG_NOSYSTEM", "1"},
                 {"GIT_CONFIG_GLOBAL", "/dev/null"}, {"GIT_NO_REPLACE_OBJECTS", "1"},
                 {"PATH", "/usr/bin:/bin"},          {"LC_ALL", "C"}};
  std::vector<std::string> argv = {git_program(),
                                   "-c",
                                   "safe.directory=*",
                                   "-c",
                                   "core.fsmonitor=false",
                                   "-c",
                                   "core.untrackedCache=false",
                                   "-c",
                                   "core.excludesFile=/dev/null",
                                   "-C",
                                   folder.string()};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return capture(argv, options);
}

/// Items of a list that ends each with `end`.
std::vector<std::string> items_of(const std::string& list, char end) {
  std::vector<std::string> items;
  for (size_t begin = 0; begin < list.size();) {
    const size_t stop = std::min(list.find(end, begin), list.size());
    items.push_back(list.substr(begin, stop - begin));
    begin = stop + 1;
  }
  return items;
}

/// Root of the checkout that holds `folder`; none where a setting (core.worktree) leads elsewhere.
std::optional<fs::path> root_of(const fs::path& folder) {
  const Captured answer = ask_git(folder, {"rev-parse", "--show-toplevel"});
  std::error_code error;
  const fs::path here = fs::canonical(folder, error);
  fs::path root = fs::canonical(first_line(answer.out), error);
  const auto end = std::mismatch(root.begin(), root.end(), here.begin(), here.end()).first;
  if (!answer.ok() || error || end != root.end()) return std::nullopt;
  return root;
}

/// Paths of regular files in HEAD, with the hash of each as git computes it.
std::map<std::string, std::string> files_in_head(const fs::path& root) {
  std::map<std::string, std::string> files;
  for (const std::string& item :
       items_of(ask_git(root, {"ls-tree", "-r", "-z", "--full-tree", "HEAD"}).out, '\0')) {
    const size_t tab = item.find('\t'), hash = item.rfind(' ', tab);
    const bool regular = item.starts_with("100");  // no link, no submodule: git status sees those
    if (regular && tab != std::string::npos)
      files[item.substr(tab + 1)] = item.substr(hash + 1, tab - hash - 1);
  }
  return files;
}

/// Files of HEAD that are missing or have other bytes below `root`. The index is not asked: its
/// flags assume-unchanged and skip-worktree, and filters, hide changes from `git status`. None when
/// git cannot hash them.
std::optional<std::vector<std::string>> other_contents(const fs::path& root) {
  std::vector<std::string> differ, there;
  std::string names;
  const auto in_head = files_in_head(root);
  for (const auto& [path, hash] : in_head) {
    std::error_code error;
    const bool hashable = fs::is_regular_file(fs::symlink_status(root / path, error)) &&
                          path.find('\n') == std::string::npos && !path.starts_with('"');
    (hashable ? there : differ).push_back(path);
    if (hashable) names += path + "\n";
  }
  const Captured answer = ask_git(root, {"hash-object", "--no-filters", "--stdin-paths"}, names);
  const auto hashes = items_of(answer.out, '\n');
  if (in_head.empty() || !answer.ok() || hashes.size() != there.size()) return std::nullopt;
  for (size_t i = 0; i < there.size(); ++i)
    if (hashes[i] != in_head.at(there[i])) differ.push_back(there[i]);
  return differ;
}

void sort_unique(std::vector<std::string>& names) {
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
}

/// Everything below `root` that differs from HEAD; none when git does not answer.
std::optional<std::vector<std::string>> differing_files(const fs::path& root) {
  const Captured status = ask_git(root, {"status", "--porcelain", "-z", "--untracked-files=all"});
  // .git/info/exclude is not asked: it is in no commit.
  const Captured untracked =
      ask_git(root, {"ls-files", "-z", "--others", "--exclude-per-directory=.gitignore"});
  const auto contents = other_contents(root);
  if (!status.ok() || !untracked.ok() || !contents) return std::nullopt;
  std::vector<std::string> all = changed_paths(status.out);
  all.insert(all.end(), contents->begin(), contents->end());
  const auto added = items_of(untracked.out, '\0');
  all.insert(all.end(), added.begin(), added.end());
  sort_unique(all);
  return all;
}

}  // namespace

GitFacts git_facts(const fs::path& folder) {
  GitFacts facts;
  const Captured commit = ask_git(folder, {"rev-parse", "HEAD"});
  if (!commit.ok()) {
    facts.problem =
        !commit.problem.empty() ? commit.problem : "no git checkout, or one without a commit";
    return facts;
  }
  const auto root = root_of(folder);
  if (!root) {
    facts.problem = "git takes another folder for the checkout; see core.worktree in its settings";
    return facts;
  }
  auto differing = differing_files(*root);
  if (!differing) {
    facts.problem = "git status failed; the list of changed files is unknown";
    return facts;
  }
  facts.known = true;
  facts.commit = first_line(commit.out);
  facts.branch = first_line(ask_git(folder, {"rev-parse", "--abbrev-ref", "HEAD"}).out);
  facts.dirty = std::move(*differing);
  return facts;
}

ChangedFiles changed_since(const fs::path& folder, const std::string& base) {
  if (base.starts_with("-")) return {.problem = "a commit must not begin with '-': " + base};
  const Captured parted = ask_git(folder, {"merge-base", base, "HEAD"});
  if (!parted.ok())
    return {.problem = "git knows no common commit of '" + base + "' and the checkout"};
  const Captured diff =
      ask_git(folder, {"diff", "--name-only", "--no-renames", "-z", first_line(parted.out)});
  if (!diff.ok()) return {.problem = "git diff against '" + base + "' failed"};
  ChangedFiles changed{.parted = first_line(parted.out), .paths = items_of(diff.out, '\0')};
  const GitFacts now = git_facts(folder);
  if (!now.known) return {.problem = now.problem};
  changed.paths.insert(changed.paths.end(), now.dirty.begin(), now.dirty.end());
  sort_unique(changed.paths);
  return changed;
}

std::optional<std::string> file_in_commit(const fs::path& folder, const std::string& commit,
                                          const std::string& path) {
  const Captured shown = ask_git(folder, {"show", commit + ":" + path});
  return shown.ok() ? std::optional(shown.out) : std::nullopt;
}

std::vector<std::string> changed_lines(const fs::path& folder, const std::string& commit,
                                       const std::string& path) {
  const TempDir dir;
  const auto before = file_in_commit(folder, commit, path);
  if (before) write_bytes(dir / "before", *before);
  // Two files, not a commit and the index, whose flags hide lines; --text: no attribute does.
  const Captured diff =
      ask_git(folder, {"diff", "--no-index", "-U0", "--text", "--no-color", "--no-ext-diff",
                       "--no-textconv", "--", before ? (dir / "before").string() : "/dev/null",
                       fs::exists(folder / path) ? path : "/dev/null"});
  std::vector<std::string> lines;
  bool in_hunk = false;
  for (const std::string& line : items_of(diff.out, '\n')) {
    in_hunk = in_hunk || line.starts_with("@@");
    if (in_hunk && (line.starts_with("-") || line.starts_with("+"))) lines.push_back(line);
  }
  return lines;
}

nlohmann::json to_json(const GitFacts& facts) {
  return {{"known", facts.known},
          {"problem", facts.problem},
          {"commit", facts.commit},
          {"branch", facts.branch},
          {"clean", facts.known && facts.dirty.empty()},
          {"dirty", facts.dirty}};
}

std::optional<fs::path> find_checkout(const fs::path& start) {
  std::error_code error;
  for (fs::path at = fs::absolute(start, error); !at.empty(); at = at.parent_path()) {
    if (fs::exists(at / "CMakeLists.txt", error) && fs::is_directory(at / "nsa", error) &&
        fs::is_directory(at / "harness", error))
      return at;
    if (at == at.parent_path()) break;
  }
  return std::nullopt;
}

fs::path program_folder() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::current_path() : self.parent_path();
}

fs::path main_worktree(const fs::path& checkout) {
  std::ifstream link(checkout / ".git");  // "gitdir: MAIN/.git/worktrees/NAME"; elsewhere a folder
  std::string line;
  std::getline(link, line);
  const std::string_view key = "gitdir: ";
  const size_t end = line.rfind("/.git/worktrees/");
  if (!line.starts_with(key) || end == std::string::npos) return checkout;
  return line.substr(key.size(), end - key.size());
}

std::optional<fs::path> this_checkout() {
  const auto beside = find_checkout(program_folder());
  return beside ? beside : find_checkout(fs::current_path());
}

}  // namespace harness
