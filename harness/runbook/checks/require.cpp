#include "harness/runbook/checks/require.h"

#include <array>
#include <cmath>
#include <optional>

#include "harness/schema/parse/nearest.h"
#include "harness/schema/write.h"

namespace harness {
namespace {

using nlohmann::json;

enum class FactType { kNumber, kText, kBool };

/// A name ending in '.' stands for every fact that starts with it.
struct FactSpec {
  std::string_view name;
  FactType type;
  std::string_view cause;   ///< of a phase that may not run because of it
  std::string_view remedy;  ///< what would make it hold
};

constexpr auto kFacts = std::to_array<FactSpec>({
    {"gpu.count", FactType::kNumber, "GPU_COUNT", "run on a machine with that many GPUs"},
    {"gpu.sku", FactType::kText, "GPU_SKU_MISMATCH", "run on a machine with that card"},
    {"gpu.cc", FactType::kNumber, "GPU_CC", "run on a card of that compute capability"},
    {"gpu.free_mib", FactType::kNumber, "GPU_NOT_FREE", "stop what holds the device memory"},
    {"gpu.exclusive", FactType::kBool, "GPU_NOT_FREE", "stop the other processes on the GPU"},
    {"cupti.ok", FactType::kBool, "CUPTI_UNAVAILABLE", "allow profiling on this machine"},
    {"data.", FactType::kBool, "DATA_MISSING",
     "supply the data set: nsa-data --in TEXT --out .data/NAME (tools/corpus makes local_text)"},
    {"git.checkout", FactType::kBool, "NO_CHECKOUT", "run inside a git checkout"},
    {"ci.status", FactType::kText, "CI_STATUS", "give --ci-status FILE"},
    {"change.base", FactType::kText, "CHANGE_BASE",
     "name the commit that the change starts from (--set PHASE.base=COMMIT) and the paths that it "
     "is about (--set 'PHASE.paths=[\"GLOB\"]'), or run ci/pr_gate"},
    {"slurm.nodes", FactType::kNumber, "NO_ALLOCATION",
     "start nsa-validate inside an allocation of Slurm (salloc, sbatch) with that many nodes"},
    {"program.", FactType::kBool, "PROGRAM_MISSING", "build the program"},
    {"baseline.ok", FactType::kBool, "BASELINE_INVALID", "promote a baseline of this hardware"},
});

const FactSpec* find_fact(const std::string& name) {
  for (const FactSpec& spec : kFacts) {
    const bool family = spec.name.ends_with('.');
    if (family ? name.starts_with(spec.name) && name.size() > spec.name.size() : name == spec.name)
      return &spec;
  }
  return nullptr;
}

struct Comparison {
  std::string op;
  double value;
};

std::optional<Comparison> parse_comparison(const json& want) {
  if (want.is_number()) return Comparison{"==", want.get<double>()};
  if (!want.is_string()) return std::nullopt;
  const auto text = want.get<std::string>();
  const size_t digits = text.find_first_not_of("<>=");
  if (digits == std::string::npos || digits == 0) return std::nullopt;
  const std::string op = text.substr(0, digits);
  const json number = json::parse(text.substr(digits), nullptr, /*allow_exceptions=*/false);
  const bool known = op == ">=" || op == "<=" || op == ">" || op == "<" || op == "==";
  if (!known || !number.is_number()) return std::nullopt;
  return Comparison{op, number.get<double>()};
}

bool holds(double have, const Comparison& want) {
  if (want.op == ">=") return have >= want.value;
  if (want.op == "<=") return have <= want.value;
  if (want.op == ">") return have > want.value;
  if (want.op == "<") return have < want.value;
  return have == want.value;
}

bool is_met(FactType type, const json& have, const json& want) {
  if (type == FactType::kBool) return have.is_boolean() && have == want;
  if (type == FactType::kText)
    return have.is_string() && glob_match(want.get<std::string>(), have.get<std::string>());
  const auto comparison = parse_comparison(want);
  return have.is_number() && comparison && holds(have.get<double>(), *comparison);
}

std::string plain(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

bool glob_match(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;  // let the last * take one byte more
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string requirement_problem(const std::string& fact, const json& want) {
  const FactSpec* spec = find_fact(fact);
  if (!spec) {
    std::vector<std::string> names;
    for (const FactSpec& known : kFacts)
      names.push_back(std::string(known.name) + (known.name.ends_with('.') ? "NAME" : ""));
    return "unknown fact " + in_quotes(fact) + did_you_mean(fact, names);
  }
  const std::string got = ", got " + in_quotes(canonical_dump(want));
  if (spec->type == FactType::kBool && !want.is_boolean())
    return "fact '" + fact + "' must be required to be true or false" + got;
  if (spec->type == FactType::kText && !want.is_string())
    return "fact '" + fact + "' must be required to match a glob" + got;
  if (spec->type == FactType::kNumber && !parse_comparison(want))
    return "fact '" + fact + "' must be required to be a number or a comparison like \">=1\"" + got;
  return "";
}

Unmet check_requirement(const std::string& fact, const json& want, const Facts& facts) {
  const FactSpec& spec = *find_fact(fact);
  const auto have = facts.find(fact);
  const bool known = have != facts.end() && !have->second.is_null();
  if (known && is_met(spec.type, have->second, want)) return {};
  const std::string state = known ? "is " + plain(have->second) : "is unknown";
  return {std::string(spec.cause),
          fact + " " + state + ", want " + plain(want) + ": " + std::string(spec.remedy)};
}

}  // namespace harness
