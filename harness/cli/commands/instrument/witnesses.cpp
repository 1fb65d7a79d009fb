#include <algorithm>
#include <cstdio>
#include <fstream>
#include <set>

#include "harness/cli/commands/commands.h"
#include "harness/cli/paths.h"
#include "harness/evidence/storage/files.h"
#include "harness/runbook/witness.h"
#include "harness/schema/error.h"

/// How each criterion of the shipped runbooks was seen to fail.
namespace harness::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Every "Suite.Name" that a test file of the checkout defines.
std::set<std::string> defined_tests(const fs::path& checkout) {
  std::set<std::string> tests;
  for (const char* folder : {"base", "harness", "nsa", "reports", "suites"})
    for (const auto& entry : fs::recursive_directory_iterator(checkout / folder)) {
      if (!entry.path().string().ends_with("_test.cpp")) continue;
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);) {
        if (!line.starts_with("TEST")) continue;
        const size_t open = line.find('('), comma = line.find(", "), close = line.find(')');
        if (open < comma && comma < close && close != std::string::npos)
          tests.insert(line.substr(open + 1, comma - open - 1) + "." +
                       line.substr(comma + 2, close - comma - 2));
      }
    }
  return tests;
}

/// The run in reports/samples of the witnesses that need a GPU.
constexpr const char* kRunOnGpu = "witnesses-h200";

/// Where witnesses point to.
class Places {
 public:
  explicit Places(fs::path checkout)
      : checkout_(std::move(checkout)), tests_(defined_tests(checkout_)) {}

  /// Why the witness shows nothing; empty when it does.
  std::string problem(const Witness& witness, const ShippedCriterion& criterion) {
    if (!witness.test.empty())
      return tests_.contains(witness.test) ? "" : "no test is called " + witness.test;
    if (!witness.recorded.empty()) return recorded_problem(witness.recorded, criterion);
    return witness.device == "cuda" ? unrun_problem(criterion) : "";
  }

 private:
  /// What needs a GPU is run there, and its run kept. Its phases are named after their kinds.
  std::string unrun_problem(const ShippedCriterion& criterion) {
    std::string kind = criterion.kind + "_";
    std::ranges::replace(kind, '-', '_');
    for (const json& judged : criteria_of(kRunOnGpu))
      if (judged.at("metric").get<std::string>().starts_with(kind) &&
          difference(judged, criterion).empty())
        return "";
    return std::string(kRunOnGpu) + " does not show it: run its runbook (--device cuda --out FILE)";
  }

  /// Criteria of a committed run; none when it is not there.
  json criteria_of(const std::string& sample) {
    const fs::path file = checkout_ / "reports/samples" / sample / "results.json";
    if (!results_.contains(sample))
      results_[sample] = fs::exists(file) ? json::parse(read_bytes(file)).at("criteria") : json();
    return results_[sample];
  }

  /// What keeps a judged criterion from being a failure of this one; empty when it is one.
  static std::string difference(const json& judged, const ShippedCriterion& criterion) {
    const auto metric = judged.at("metric").get<std::string>();
    const json& value = criterion.spec.value;
    if (metric.substr(metric.find('.') + 1) != criterion.metric) return "is about " + metric;
    if (judged.at("op") != criterion.spec.op) return "compares by " + judged.at("op").dump();
    // A baseline's threshold is that of its hardware.
    if (!value.is_object() &&
        judged.at("threshold") != (value.is_boolean() ? json(value ? 1 : 0) : value))
      return "has the threshold " + judged.at("threshold").dump();
    if (judged.at("verdict") != "FAIL") return "is " + judged.at("verdict").get<std::string>();
    return "";
  }

  std::string recorded_problem(const std::string& where, const ShippedCriterion& criterion) {
    const size_t space = where.find(' ');
    const std::string sample = where.substr(0, space), id = where.substr(space + 1);
    for (const json& judged : criteria_of(sample)) {
      if (judged.at("id") != id) continue;
      const std::string why = difference(judged, criterion);
      return why.empty() ? "" : id + " of " + sample + " " + why;
    }
    return "no run " + sample + " in reports/samples has a criterion " + id;
  }

  fs::path checkout_;
  std::set<std::string> tests_;
  std::map<std::string, json> results_;  ///< criteria of samples, by name
};

struct Count {
  int64_t all = 0, run = 0, test = 0, recorded = 0, alike = 0, missing = 0;
};

void count(const Witness& witness, const ShippedCriterion& criterion, Count& counts) {
  counts.alike += std::ranges::find(witness.metrics, criterion.metric) == witness.metrics.end();
  counts.run += !witness.args.is_null();
  counts.test += !witness.test.empty();
  counts.recorded += !witness.recorded.empty();
}

/// The first witness of the criterion that shows something; why there is none in `problem`.
const Witness* find_witness(const std::map<std::string, std::vector<Witness>>& witnesses,
                            const ShippedCriterion& criterion, Places& places,
                            std::string& problem) {
  problem = "no witness in configs/witnesses/" + criterion.kind + ".json";
  const auto of_kind = witnesses.find(criterion.kind);
  if (of_kind == witnesses.end()) return nullptr;
  for (const Witness& witness : of_kind->second) {
    if (!applies(witness, criterion)) continue;
    problem = places.problem(witness, criterion);
    if (problem.empty()) return &witness;
  }
  return nullptr;
}

void print_missing(const ShippedCriterion& criterion, const std::string& problem) {
  std::printf("%s %s: %s %s %s: %s\n", criterion.runbook.c_str(), criterion.spec.id.c_str(),
              criterion.spec.metric.c_str(), criterion.spec.op.c_str(),
              criterion.spec.value.dump().c_str(), problem.c_str());
}

}  // namespace

int witnesses_command(const Options& options) {
  const fs::path configs = configs_dir(options.configs);
  const Kinds kinds = load_kinds(configs);
  const auto witnesses = load_witnesses(configs, kinds);
  const auto criteria = shipped_criteria(configs, kinds);
  if (!options.out.empty()) {
    const fs::path file = options.out;
    const json book =
        witness_runbook(file.stem().string(), options.device, witnesses, criteria, kinds);
    write_bytes(file, book.dump(1) + "\n");
    return 0;
  }
  if (checkout_dir().empty()) throw ConfigError("witnesses are looked up in a checkout: none here");
  Places places(checkout_dir());
  Count counts;
  for (const ShippedCriterion& criterion : criteria) {
    ++counts.all;
    std::string problem;
    if (const Witness* witness = find_witness(witnesses, criterion, places, problem)) {
      count(*witness, criterion, counts);
    } else {
      ++counts.missing;
      print_missing(criterion, problem);
    }
  }
  std::printf(
      "%ld criteria of %zu runbooks: seen to fail in a small run %ld, in a named test %ld, in a "
      "recorded run %ld (%ld of them by a figure that is computed alike); never seen to fail %ld\n",
      counts.all, list_runbooks(configs).size(), counts.run, counts.test, counts.recorded,
      counts.alike, counts.missing);
  return counts.missing == 0 && counts.all > 0 ? 0 : 1;
}

}  // namespace harness::cli
