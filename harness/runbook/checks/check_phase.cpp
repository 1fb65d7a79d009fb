#include "harness/runbook/checks/check_phase.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/text/plain_text.h"
#include "harness/runbook/checks/args.h"
#include "harness/runbook/checks/check_at.h"
#include "harness/runbook/checks/require.h"
#include "harness/schema/error.h"

namespace harness {
namespace {

using nlohmann::json;

const KindSpec& kind_of(const Source& source, const json& document, const PhaseSpec& phase,
                        const Kinds& kinds) {
  const json& place = at(document, "run");
  RunTarget target;
  try {
    target = parse_run(phase.run);
  } catch (const ConfigError& e) {
    source.fail(place, e.message());
  }
  std::vector<std::string> names;
  for (const auto& [name, kind] : kinds) names.push_back(name);
  const auto found = kinds.find(target.kind);
  if (found == kinds.end())
    source.fail(place, "phase '" + phase.id + "': no phase kind " + in_quotes(target.kind) +
                           " (configs/kinds)" + did_you_mean(target.kind, names));
  require(source, place, found->second.program == target.program,
          "phase '" + phase.id + "': kind '" + target.kind + "' runs in " + found->second.program +
              ", not in " + target.program);
  return found->second;
}

void check_cases(const Source& source, const json& document, const PhaseSpec& phase,
                 const KindSpec& kind) {
  std::set<std::string> seen;
  for (size_t i = 0; i < phase.cases.size(); ++i) {
    const CaseSpec& item = phase.cases[i];
    const json& place = document.at("cases")[i];
    require(source, at(place, "id"), is_plain_name(item.id),
            "case id " + in_quotes(item.id) + " must be lower case letters, digits and _");
    require(source, at(place, "id"), seen.insert(item.id).second,
            "case " + in_quotes(item.id) + " is given twice in phase '" + phase.id + "'");
    if (place.contains("args"))
      check_args(source, place.at("args"), kind, phase.id + "." + item.id + ".args");
  }
}

constexpr double kShortestTimeout = 1e-3, kLongestTimeout = 1e6;  ///< seconds; 11 days

void check_limits(const Source& source, const json& document, const PhaseSpec& phase) {
  constexpr int64_t kMostRetries = 10;
  const std::string what = "phase '" + phase.id + "': ";
  require(source, at(document, "processes"),
          phase.processes >= 1 && phase.processes <= kMostProcesses,
          what + "processes must be 1 to 999, got " + std::to_string(phase.processes));
  require(source, at(document, "timeout_s"),
          phase.timeout_s >= kShortestTimeout && phase.timeout_s <= kLongestTimeout,
          what + "timeout_s must be 0.001 to 1000000");
  require(source, at(document, "minutes"), std::isfinite(phase.minutes) && phase.minutes >= 0,
          what + "minutes must not be negative");
  if (!phase.device.empty())
    require_one_of(source, at(document, "device"), what + "device", phase.device, device_names());
  require_one_of(source, at(document, "launcher"), what + "launcher", phase.launcher,
                 {"engine", "srun"});
  require(source, at(document, "launcher"),
          phase.launcher == "engine" || phase.args.value("ranks", int64_t{1}) > 1,
          what + "launcher srun starts ranks; set args.ranks to 2 or more");
  require(source, at(document, "retries"), phase.retries >= 0 && phase.retries <= kMostRetries,
          what + "retries must be 0 to 10, got " + std::to_string(phase.retries));
}

/// With the 99 % split over the looks, the first one must be able to attain its share: an exact
/// signed-rank test of n pairs knows no error below 2^(1-n).
void check_stages(const Source& source, const json& document, const PhaseSpec& phase,
                  const KindSpec& kind) {
  if (phase.max_processes == 0 && !phase.confirm) return;
  const std::string what = "phase '" + phase.id + "': ";
  const char* key = phase.confirm ? "confirm" : "max_processes";
  const bool paired = std::ranges::any_of(kind.metrics, [](const MetricSpec& metric) {
    return metric.estimator.starts_with("paired_");
  });
  require(source, at(document, key), paired,
          what + key + " is for phases that compare two arms; kind '" + kind.kind +
              "' declares no paired figure");
  require(source, at(document, "max_processes"),
          phase.max_processes == 0 ||
              (phase.max_processes >= 2 * phase.processes && phase.max_processes <= kMostProcesses),
          what + "max_processes must leave room for one doubling of processes (" +
              std::to_string(2 * phase.processes) + " to " + std::to_string(kMostProcesses) +
              "), got " + std::to_string(phase.max_processes));
  const std::string problem = looks_problem(phase);
  require(source, at(document, "processes"), problem.empty(), what + problem);
}

/// A path that can name a file of the run folder, and be printed.
bool is_file_inside(const std::string& path) {
  const auto plain = std::filesystem::path(path).lexically_normal();
  return !path.empty() && plain.is_relative() && plain.has_filename() && *plain.begin() != ".." &&
         plain != "." && path == base::plain_text(path);
}

void check_lists(const Source& source, const json& document, const PhaseSpec& phase,
                 const KindSpec& kind) {
  std::vector<std::string> declared;
  for (const ArgSpec& arg : kind.args) declared.push_back(arg.name);
  for (const std::string& name : phase.free)
    require(source, at(document, "free"), contains(declared, name),
            "phase '" + phase.id + "': free names no argument " + in_quotes(name) + " of kind '" +
                kind.kind + "'" + did_you_mean(name, declared));
  for (const std::string& path : phase.artifacts)
    require(source, at(document, "artifacts"), is_file_inside(path),
            "artifact " + in_quotes(path) + " must be a path inside the run folder");
  for (const auto& [name, value] : phase.switches) {
    require(source, at(at(document, "switches"), name), name.starts_with("NSA_") && name.size() > 4,
            "switch " + in_quotes(name) + " must be an NSA_* name");
    require(source, at(at(document, "switches"), name), value.find('\0') == std::string::npos,
            "switch " + in_quotes(name) + " holds a NUL, at which its value would end");
  }
  for (const auto& [fact, want] : phase.require) {
    const std::string problem = requirement_problem(fact, want);
    require(source, at(at(document, "require"), fact), problem.empty(),
            "phase '" + phase.id + "': require: " + problem);
  }
}

}  // namespace

void check_phase(const Source& source, const json& document, const PhaseSpec& phase,
                 const Kinds& kinds) {
  require(source, at(document, "id"), is_plain_name(phase.id),
          "phase id " + in_quotes(phase.id) + " must be lower case letters, digits and _");
  const KindSpec& kind = kind_of(source, document, phase, kinds);
  if (document.contains("args")) check_args(source, document.at("args"), kind, phase.id + ".args");
  check_cases(source, document, phase, kind);
  check_limits(source, document, phase);
  check_stages(source, document, phase, kind);
  check_lists(source, document, phase, kind);
}

}  // namespace harness
