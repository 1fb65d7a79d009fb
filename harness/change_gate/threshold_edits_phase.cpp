#include <algorithm>

#include "base/json/depth.h"
#include "harness/change_gate/test_edits.h"
#include "harness/change_gate/threshold_edits.h"
#include "harness/evidence/storage/files.h"
#include "harness/phases/arguments.h"
#include "harness/phases/builtin_phases.h"
#include "harness/provenance/build/git.h"
#include "harness/schema/error.h"

namespace harness {
namespace {

using nlohmann::json;

std::vector<ThresholdEdit> edits_of(const std::filesystem::path& checkout,
                                    const std::string& parted, const std::string& path) {
  const auto file = checkout / path;
  const bool runbook = path.starts_with("configs/runbooks/");
  const auto before = file_in_commit(checkout, parted, path);
  if (!before && runbook) return {};  // a new runbook loosens nothing
  if (!before) return {{"file", "", "new"}};
  if (!runbook) {
    const auto edits = line_edits(changed_lines(checkout, parted, path));
    return edits.empty() ? std::vector<ThresholdEdit>{{"file", "there", "changed"}} : edits;
  }
  const bool there = std::filesystem::is_regular_file(file);
  return runbook_edits(*before, there ? std::optional(read_bytes(file)) : std::nullopt);
}

/// Globs that the commit before the change watched: no change takes itself off the list.
std::vector<std::string> watched_before(const std::filesystem::path& checkout,
                                        const std::string& parted) {
  const auto text = file_in_commit(checkout, parted, "configs/kinds/threshold_edits.json");
  if (!text || base::nests_too_deep(*text)) return {};
  const json kind = json::parse(*text, nullptr, false, /*ignore_comments=*/true);
  if (!kind.is_object() || !kind.contains("args") || !kind["args"].is_array()) return {};
  for (const json& arg : kind["args"])
    if (arg.is_object() && arg.value("name", json()) == "watched")
      return text_list({{"watched", arg.value("default", json::array())}}, "watched");
  return {};
}

/// Changes of the files that define tests or list them.
std::map<std::string, FileChange> changes_of_tests(const std::filesystem::path& checkout,
                                                   const ChangedFiles& changed) {
  static const std::vector<std::string> kFiles = {"*_test.cpp", "CMakeLists.txt",
                                                  "*/CMakeLists.txt", "*.cmake"};
  std::map<std::string, FileChange> changes;
  for (const std::string& path : changed.paths) {
    if (!matches_any(kFiles, path)) continue;
    FileChange& change = changes[path];
    change.before = file_in_commit(checkout, changed.parted, path);
    if (std::filesystem::is_regular_file(checkout / path))
      change.after = read_bytes(checkout / path);
  }
  return changes;
}

}  // namespace

void run_threshold_edits(const std::optional<std::filesystem::path>& checkout,
                         const BuiltinCall& call, base::protocol::Emitter& emitter) {
  const base::protocol::CaseArgs& one = call.in.cases.front();
  const json args = base::protocol::merged_args(call.in, one);
  const std::string base = args.value("base", ""), reason = args.value("reason", "");
  if (base.empty())
    return emitter.fail_case(one.id, "args.base must be given: the commit the change starts from");
  if (!checkout) return emitter.fail_case(one.id, "no checkout");
  const ChangedFiles changed = changed_since(*checkout, base);
  if (!changed.problem.empty()) return emitter.fail_case(one.id, changed.problem);
  const auto watched = text_list(args, "watched"),
             before = watched_before(*checkout, changed.parted);
  auto found = test_edits(changes_of_tests(*checkout, changed));
  for (const std::string& path : changed.paths) {
    // A README explains what decides; a golden text decides.
    if (path.ends_with("/README.md")) continue;
    if (matches_any(watched, path) || matches_any(before, path))
      std::ranges::move(edits_of(*checkout, changed.parted, path), std::back_inserter(found[path]));
  }
  std::erase_if(found, [](const auto& file) { return file.second.empty(); });
  json rows = json::array();
  int64_t unexplained = 0;
  for (const auto& [path, edits] : found) {
    for (const ThresholdEdit& edit : edits)
      rows.push_back({path, edit.what, edit.before, edit.after});
    unexplained += reason.empty();
    const std::string first = path + ": " + edits.front().what + " was " + edits.front().before +
                              ", is " + edits.front().after;
    emitter.check(
        {.case_id = one.id,
         .id = "edit/" + path,
         .ok = !reason.empty(),
         .code = reason.empty() ? "THRESHOLD_EDIT" : "",
         .detail = first + (reason.empty() ? "; no reason is given" : "; reason: " + reason)});
  }
  emitter.metric(
      {.case_id = one.id, .name = "edits.found_count", .value = rows.size(), .unit = "count"});
  emitter.metric({.case_id = one.id,
                  .name = "edits.unexplained_count",
                  .value = unexplained,
                  .unit = "count"});
  emitter.table({.case_id = one.id,
                 .id = "edits",
                 .title = "Changes of what decides a verdict",
                 .columns = {"file", "what", "before", "after"},
                 .rows = rows});
  emitter.end_case(one.id);
}

}  // namespace harness
