#include "harness/runbook/checks/args.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/schema/error.h"
#include "harness/schema/parse/nearest.h"
#include "harness/schema/write.h"

namespace harness {
namespace {

using nlohmann::json;

const ArgSpec* find_arg(const KindSpec& kind, const std::string& name) {
  const auto at = std::find_if(kind.args.begin(), kind.args.end(),
                               [&](const ArgSpec& spec) { return spec.name == name; });
  return at == kind.args.end() ? nullptr : &*at;
}

std::vector<std::string> arg_names(const KindSpec& kind) {
  std::vector<std::string> names;
  for (const ArgSpec& spec : kind.args) names.push_back(spec.name);
  return names;
}

bool is_int64(const json& value) {
  if (value.is_number_unsigned()) return value.get<uint64_t>() <= uint64_t{INT64_MAX};
  return value.is_number_integer();
}

bool is_of_type(const std::string& type, const json& value) {
  if (type == "int") return is_int64(value);
  if (type == "number") return value.is_number() && std::isfinite(value.get<double>());
  if (type == "string") return value.is_string();
  if (type == "bool") return value.is_boolean();
  if (type == "list") return value.is_array();
  return type == "object" && value.is_object();
}

/// One --set, taken apart.
struct Override {
  std::string text, phase, key, value;
};

Override split_override(const std::string& text) {
  const size_t equals = text.find('=');
  const size_t dot = text.find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot == 0 || dot + 1 >= equals)
    throw ConfigError("--set " + in_quotes(text) + " must be phase.key=value");
  return {text, text.substr(0, dot), text.substr(dot + 1, equals - dot - 1),
          text.substr(equals + 1)};
}

PhaseSpec& phase_of(const Override& set, Runbook& runbook) {
  std::vector<std::string> ids;
  for (PhaseSpec& phase : runbook.phases) {
    if (phase.id == set.phase) return phase;
    ids.push_back(phase.id);
  }
  throw ConfigError("--set " + in_quotes(set.text) + ": no phase " + in_quotes(set.phase) +
                    " in runbook '" + runbook.name + "'" + did_you_mean(set.phase, ids));
}

json typed_value(const Override& set, const ArgSpec& spec) {
  json value = set.value;
  if (spec.type != "string") {
    try {
      value = Source().parse(set.value, "--set");
    } catch (const ConfigError&) {
      value = set.value;  // no JSON: it is text, and the type check names the right type
    }
  }
  if (const std::string problem = arg_type_problem(spec.type, value); !problem.empty())
    throw ConfigError("--set " + in_quotes(set.text) + ": " + set.key + " " + problem);
  return value;
}

constexpr const char* kBudget = "max_processes";

/// More processes than the runbook allows an A/B that is not decided. Fewer would be a weaker test.
Deviation raise_budget(const Override& set, PhaseSpec& phase) {
  const json value = json::parse(set.value, nullptr, /*allow_exceptions=*/false);
  const int64_t before = phase.max_processes;
  if (!is_int64(value) || value.get<int64_t>() <= before || value.get<int64_t>() > kMostProcesses)
    throw ConfigError("--set " + in_quotes(set.text) + ": " + kBudget + " must be above the " +
                      std::to_string(before) + " of the runbook, at most " +
                      std::to_string(kMostProcesses));
  phase.max_processes = value.get<int64_t>();
  if (const std::string problem = looks_problem(phase); !problem.empty())
    throw ConfigError("--set " + in_quotes(set.text) + ": " + problem);
  const std::string key = set.phase + "." + set.key;
  return {"D-set." + key,
          "--set " + key + "=" + set.value + " (runbook: " + std::to_string(before) + ")",
          "asked for on the command line"};
}

}  // namespace

std::string looks_problem(const PhaseSpec& phase) {
  int64_t looks = 1;
  for (int64_t n = phase.processes; 2 * n <= phase.max_processes; n *= 2) ++looks;
  const double share = 0.01 / static_cast<double>(looks);
  if (std::exp2(1.0 - static_cast<double>(phase.processes)) <= share) return "";
  return "processes are too few to decide anything in one of " + std::to_string(looks) +
         " looks at 99 % together, got " + std::to_string(phase.processes);
}

std::string arg_type_problem(const std::string& type, const json& value) {
  if (is_of_type(type, value)) return "";
  const bool vowel = type == "int" || type == "object";
  return std::string("must be ") + (vowel ? "an " : "a ") + type + ", got " +
         in_quotes(canonical_dump(value));
}

void check_args(const Source& source, const json& args, const KindSpec& kind,
                const std::string& where) {
  if (!args.is_object())
    source.fail(args, where + " must be an object, got " + in_quotes(canonical_dump(args)));
  for (const auto& [name, value] : args.items()) {
    const ArgSpec* spec = find_arg(kind, name);
    if (!spec)
      source.fail_at_key(args, name,
                         where + ": kind '" + kind.kind + "' declares no argument " +
                             in_quotes(name) + did_you_mean(name, arg_names(kind)));
    if (const std::string problem = arg_type_problem(spec->type, value); !problem.empty())
      source.fail(value, where + "." + name + " " + problem);
  }
}

json with_defaults(const json& args, const KindSpec& kind) {
  json filled = json::object();
  for (const ArgSpec& spec : kind.args) filled[spec.name] = args.value(spec.name, spec.value);
  return filled;
}

std::vector<Deviation> apply_overrides(const std::vector<std::string>& overrides,
                                       const Kinds& kinds, Runbook& runbook) {
  std::vector<Deviation> deviations;
  std::set<std::string> seen;
  for (const std::string& text : overrides) {
    const Override set = split_override(text);
    PhaseSpec& phase = phase_of(set, runbook);
    const std::string key = set.phase + "." + set.key;
    if (!seen.insert(key).second)
      throw ConfigError("--set " + in_quotes(text) + ": " + key + " is set twice; keep one");
    if (set.key == kBudget && phase.max_processes > 0) {
      deviations.push_back(raise_budget(set, phase));
      continue;
    }
    const KindSpec& kind = kinds.at(parse_run(phase.run).kind);
    const ArgSpec* spec = find_arg(kind, set.key);
    if (!spec)
      throw ConfigError("--set " + in_quotes(text) + ": kind '" + kind.kind +
                        "' declares no argument " + in_quotes(set.key) +
                        did_you_mean(set.key, arg_names(kind)));
    const json before = phase.args.value(set.key, spec->value);
    phase.args[set.key] = typed_value(set, *spec);
    const bool free = std::find(phase.free.begin(), phase.free.end(), set.key) != phase.free.end();
    if (free || before == phase.args[set.key]) continue;
    deviations.push_back({"D-set." + key,
                          "--set " + key + "=" + canonical_dump(phase.args[set.key]) +
                              " (runbook: " + canonical_dump(before) + ")",
                          "asked for on the command line"});
  }
  return deviations;
}

}  // namespace harness
