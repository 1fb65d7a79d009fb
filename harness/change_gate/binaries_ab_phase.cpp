// A/B of two builds of one program: arms that cannot share a process run back to back.
#include <algorithm>
#include <map>
#include <random>

#include "harness/phases/arguments.h"
#include "harness/phases/builtin_phases.h"
#include "harness/phases/worker_call.h"
#include "harness/stats/order_statistics.h"

namespace harness {
namespace {

using nlohmann::json;

/// What is measured in one case.
struct Work {
  std::string worker;                        ///< phase kind of nsa-worker
  json args;                                 ///< its arguments
  std::map<std::string, std::string> names;  ///< series of the worker -> its short name here
  double timeout_s = 120;
};

Work read_work(const json& args) {
  Work work{.worker = args.value("worker", ""),
            .args = args.value("worker_args", json::object()),
            .names = {}};
  const json series_by_name = args.value("series", json::object());
  for (const auto& [name, series] : series_by_name.items())
    work.names[series.get<std::string>()] = name;
  if (work.worker.empty() || work.names.empty())
    throw ConfigError("args.worker and args.series must be given: what both builds are to time");
  return work;
}

struct Arm {
  std::string name;  ///< base, base.aa (base once more) or head
  std::filesystem::path bin;
};

/// Programs without build_id.json beside them report "unknown".
bool is_known(const std::string& build_id) { return !build_id.empty() && build_id != "unknown"; }

class Pair {
 public:
  Pair(const BuiltinCall& call, const base::protocol::CaseArgs& one,
       base::protocol::Emitter& emitter)
      : call_(call),
        one_(one),
        args_(base::protocol::merged_args(call.in, one)),
        emitter_(emitter) {}

  /// Rounds of base, aa, head and back, which end first drawn from the seed. Returns why the case
  /// failed; empty when it did not.
  std::string run(const std::filesystem::path& bin_dir) {
    const Work work = read_work(args_);
    const std::string base = args_.value("base_bin", ""), head = args_.value("head_bin", "");
    if (base.empty()) return "args.base_bin must be given: the folder of the base's programs";
    std::vector<Arm> arms = {{"base", base},
                             {"base.aa", base},
                             {"head", head.empty() ? bin_dir : std::filesystem::path(head)}};
    std::mt19937_64 draw(static_cast<uint64_t>(call_.in.seed));
    for (int64_t round = 0; round < args_.value("rounds", int64_t{1}); ++round) {
      if (draw() % 2 == 1) std::ranges::reverse(arms);
      int64_t order = 0;
      for (size_t slot = 0; slot < 2 * arms.size(); ++slot) {
        const Arm& arm = arms[slot < arms.size() ? slot : 2 * arms.size() - 1 - slot];
        if (const std::string problem = measure(work, arm, round, order++); !problem.empty())
          return problem;
      }
    }
    emit_builds();
    return "";
  }

 private:
  std::string measure(const Work& work, const Arm& arm, int64_t round, int64_t order) {
    if (call_.stop_signal && call_.stop_signal() != 0) return "interrupted";
    const WorkerAnswer answer = call_worker({.program = arm.bin / "nsa-worker",
                                             .kind = work.worker,
                                             .args = work.args,
                                             .device = call_.in.device,
                                             .seed = call_.in.seed,
                                             .timeout_s = work.timeout_s,
                                             .mode = "time"});
    const auto failed = answer.failed_checks();
    const auto end = answer.transcript.ended.find("injected");
    if (answer.problem.empty() && failed.empty() && end->second.status != "ok")
      return arm.name + " (" + arm.bin.string() + "): " + end->second.reason;
    if (!answer.problem.empty() && failed.empty())
      return arm.name + " (" + arm.bin.string() + "): " + answer.problem;
    emit_outputs(arm, failed);
    std::map<std::string, std::vector<double>> values;
    std::map<std::string, std::string> units;
    for (const auto& line : answer.transcript.lines) {
      if (const auto* hello = std::get_if<base::protocol::Hello>(&line.message))
        builds_[arm.name] = hello->build_id;
      const auto* sample = std::get_if<base::protocol::Sample>(&line.message);
      if (sample == nullptr) continue;
      if (!sample->value)
        return arm.name + " reported a null sample of series '" + sample->series +
               "': " + sample->reason;
      values[sample->series].push_back(*sample->value);
      units[sample->series] = sample->unit;
    }
    for (const auto& [series, name] : work.names) {
      if (failed.empty() && values[series].empty())
        return arm.name + " reported no samples of series '" + series + "'";
      if (values[series].empty()) continue;
      emitter_.sample({.case_id = one_.id,
                       .series = name + "." + arm.name,
                       .value = stats::median(values[series]),
                       .unit = units[series],
                       .round = round,
                       .order = order});
    }
    return "";
  }

  /// One line an arm, at its first start and wherever an output differs: speed is withheld then.
  void emit_outputs(const Arm& arm, const std::vector<base::protocol::Check>& failed) {
    if (failed.empty() && builds_.contains(arm.name)) return;
    emitter_.check(
        {.case_id = one_.id,
         .id = "outputs/" + arm.name,
         .ok = failed.empty(),
         .code = failed.empty() ? "" : "SPEEDUP_WITHHELD",
         .detail = failed.empty() ? "" : failed.front().id + ": " + failed.front().detail});
  }

  void emit_builds() {
    const bool known = is_known(builds_["base"]) && is_known(builds_["head"]);
    emitter_.metric({.case_id = one_.id,
                     .name = one_.id + ".differ_bool",
                     .value = known ? json(builds_["base"] != builds_["head"]) : json(),
                     .unit = "bool",
                     .reason = known ? "" : "a build has no build id"});
    if (call_.in.group != "g01") return;
    emitter_.table({.case_id = one_.id,
                    .id = "builds." + one_.id,
                    .title = "Builds compared in " + one_.id,
                    .columns = {"arm", "build id"},
                    .rows = json::array({json::array({"base", builds_["base"]}),
                                         json::array({"head", builds_["head"]})})});
  }

  const BuiltinCall& call_;
  const base::protocol::CaseArgs& one_;
  const json args_;
  base::protocol::Emitter& emitter_;
  std::map<std::string, std::string> builds_;
};

}  // namespace

void run_binaries_ab(const std::filesystem::path& bin_dir, const BuiltinCall& call,
                     base::protocol::Emitter& emitter) {
  for (const base::protocol::CaseArgs& one : call.in.cases) {
    const std::string problem = Pair(call, one, emitter).run(bin_dir);
    if (problem.empty())
      emitter.end_case(one.id);
    else
      emitter.fail_case(one.id, problem);
  }
}

}  // namespace harness
