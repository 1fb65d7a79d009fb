#include <algorithm>

#include "harness/builtin/builtins.h"
#include "harness/provenance/git.h"
#include "harness/runbook/require.h"
#include "harness/schema/error.h"

namespace harness {
namespace {

using nlohmann::json;

std::vector<std::string> texts(const json& args, const char* key) {
  const json list = args.value(key, json::array());
  try {
    return list.get<std::vector<std::string>>();
  } catch (const json::exception&) {
    throw ConfigError(std::string("args.") + key + " must be a list of strings, got " +
                      list.dump());
  }
}

bool matches_any(const std::vector<std::string>& globs, const std::string& path) {
  return std::ranges::any_of(globs, [&](const auto& glob) { return glob_match(glob, path); });
}

}  // namespace

void run_diff_scope(const std::optional<std::filesystem::path>& checkout, const BuiltinCall& call,
                    protocol::Emitter& emitter) {
  const protocol::CaseArgs& one = call.in.cases.front();
  const json args = protocol::merged_args(call.in, one);
  const std::string base = args.value("base", "");
  const auto scope = texts(args, "scope"), guarded = texts(args, "guarded"),
             allow = texts(args, "allow");
  if (base.empty() || scope.empty())
    return emitter.fail_case(one.id,
                             "args.base and args.scope must be given: the commit the change "
                             "starts from, and what it says it is about");
  const ChangedFiles changed =
      checkout ? changed_since(*checkout, base) : ChangedFiles{.problem = "no checkout"};
  if (!changed.problem.empty()) return emitter.fail_case(one.id, changed.problem);
  for (const std::string& path : changed.paths) {
    const bool inside = matches_any(scope, path);
    emitter.check(
        {.case_id = one.id,
         .id = "scope/" + path,
         .ok = inside,
         .code = inside ? "" : "DIFF_OUT_OF_SCOPE",
         .detail = inside ? "" : path + " is outside the scope that the change declares"});
    if (!matches_any(guarded, path)) continue;
    const bool allowed = std::ranges::find(allow, path) != allow.end();
    emitter.check({.case_id = one.id,
                   .id = "guarded/" + path,
                   .ok = allowed,
                   .code = allowed ? "" : "DIFF_OUT_OF_SCOPE",
                   .detail = allowed
                                 ? ""
                                 : path + " holds tolerances, goldens, thresholds or baselines; "
                                          "name it in args.allow to change it on purpose"});
  }
  emitter.metric({.case_id = one.id,
                  .name = "files.changed_count",
                  .value = changed.paths.size(),
                  .unit = "count"});
  emitter.end_case(one.id);
}

}  // namespace harness
