#include "harness/provenance/build/git.h"

#include <algorithm>

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

/// Asks git about `folder`. safe.directory: a checkout that another user owns is read, never run
/// from.
Captured ask_git(const fs::path& folder, const std::vector<std::string>& arguments) {
  CaptureOptions options;
  options.env = {{"GIT_OPTIONAL_LOCKS", "0"}};
  std::vector<std::string> argv = {"git", "-c", "safe.directory=*", "-C", folder.string()};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return capture(argv, options);
}

}  // namespace

GitFacts git_facts(const fs::path& folder) {
  GitFacts facts;
  const auto git = [&](const std::vector<std::string>& arguments) {
    return ask_git(folder, arguments);
  };
  const Captured commit = git({"rev-parse", "HEAD"});
  if (!commit.ok()) {
    facts.problem =
        !commit.problem.empty() ? commit.problem : "no git checkout, or one without a commit";
    return facts;
  }
  const Captured status = git({"status", "--porcelain", "-z", "--untracked-files=all"});
  if (!status.ok()) {
    facts.problem = "git status failed; the list of changed files is unknown";
    return facts;
  }
  facts.known = true;
  facts.commit = first_line(commit.out);
  facts.branch = first_line(git({"rev-parse", "--abbrev-ref", "HEAD"}).out);
  facts.dirty = changed_paths(status.out);
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
  ChangedFiles changed{.parted = first_line(parted.out)};
  for (size_t begin = 0; begin < diff.out.size();) {
    const size_t end = std::min(diff.out.find('\0', begin), diff.out.size());
    changed.paths.push_back(diff.out.substr(begin, end - begin));
    begin = end + 1;
  }
  const GitFacts now = git_facts(folder);
  if (!now.known) return {.problem = now.problem};
  changed.paths.insert(changed.paths.end(), now.dirty.begin(), now.dirty.end());
  std::sort(changed.paths.begin(), changed.paths.end());
  changed.paths.erase(std::unique(changed.paths.begin(), changed.paths.end()), changed.paths.end());
  return changed;
}

std::optional<std::string> file_in_commit(const fs::path& folder, const std::string& commit,
                                          const std::string& path) {
  const Captured shown = ask_git(folder, {"show", commit + ":" + path});
  return shown.ok() ? std::optional(shown.out) : std::nullopt;
}

std::vector<std::string> changed_lines(const fs::path& folder, const std::string& commit,
                                       const std::string& path) {
  const Captured diff =
      ask_git(folder, {"diff", "-U0", "--text", "--no-color", "--no-ext-diff", "--no-textconv",
                       commit, "--", path});  // --text: no attribute of the change hides its lines
  std::vector<std::string> lines;
  bool in_hunk = false;
  for (size_t begin = 0; begin < diff.out.size();) {
    const size_t end = std::min(diff.out.find('\n', begin), diff.out.size());
    const std::string line = diff.out.substr(begin, end - begin);
    begin = end + 1;
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

std::optional<fs::path> this_checkout() {
  const auto beside = find_checkout(program_folder());
  return beside ? beside : find_checkout(fs::current_path());
}

}  // namespace harness
