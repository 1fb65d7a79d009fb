#include <algorithm>

#include "harness/phases/arguments.h"
#include "harness/phases/builtin_phases.h"
#include "harness/provenance/build/git.h"

namespace harness {
using nlohmann::json;

void run_diff_scope(const std::optional<std::filesystem::path>& checkout, const BuiltinCall& call,
                    base::protocol::Emitter& emitter) {
  const base::protocol::CaseArgs& one = call.in.cases.front();
  const json args = base::protocol::merged_args(call.in, one);
  const std::string base = args.value("base", "");
  const auto scope = text_list(args, "paths"), guarded = text_list(args, "guarded"),
             allow = text_list(args, "allow");
  if (base.empty() || scope.empty())
    return emitter.fail_case(one.id,
                             "args.base and args.paths must be given: the commit the change "
                             "starts from, and the paths of its scope");
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
