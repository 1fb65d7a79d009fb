#include "harness/runbook/witness.h"

#include <algorithm>
#include <set>

#include "harness/runbook/checks/names.h"
#include "harness/runbook/checks/require.h"
#include "harness/runbook/files.h"
#include "harness/schema/error.h"
#include "harness/schema/parse/nearest.h"
#include "harness/schema/read.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::vector<std::string> names_of(const KindSpec& kind) {
  std::vector<std::string> names;
  for (const MetricSpec& metric : kind.metrics) names.push_back(metric.name);
  return names;
}

void check_witness(const Source& source, const json& document, const Witness& witness,
                   const KindSpec& kind) {
  const std::vector<std::string> names = names_of(kind);
  for (const std::string& metric : witness.metrics)
    if (!contains(names, metric))
      source.fail(document.at("metrics"), "kind '" + kind.kind + "' declares no figure " +
                                              in_quotes(metric) + did_you_mean(metric, names));
  const int places = !witness.args.is_null() + !witness.test.empty() + !witness.recorded.empty();
  if (places != 1)
    source.fail(document, "a witness has exactly one of args, test and recorded, got " +
                              std::to_string(places));
  if (witness.metrics.empty()) source.fail(document, "metrics is empty: it fails nothing");
  if (witness.cause.empty()) source.fail(document, "cause must name what is injected");
}

/// The metric's name inside its phase.
std::pair<std::string, std::string> split_metric(const std::string& full) {
  const size_t dot = full.find('.');
  return {full.substr(0, dot), full.substr(dot + 1)};
}

/// The program and kind behind `run`, with the filter of a witness.
std::string run_text(const KindSpec& kind, const Witness& witness) {
  if (kind.program == "nsa-train") return kind.program;
  return kind.program + ":" + (witness.filter.empty() ? kind.kind : witness.filter);
}

/// The shipped criteria that `witness` makes fail, about the figures that its phase measures: one
/// for each figure, operator and threshold.
json criteria_of(const std::string& phase, const Witness& witness,
                 const std::vector<ShippedCriterion>& criteria, const std::string& kind) {
  json copies = json::array();
  std::set<std::string> seen;
  for (const ShippedCriterion& shipped : criteria) {
    if (shipped.kind != kind || !applies(witness, shipped)) continue;
    const bool own = contains(witness.metrics, shipped.metric);
    for (const std::string& metric : witness.metrics) {
      if (own && metric != shipped.metric) continue;
      const std::string key = metric + shipped.spec.op + shipped.spec.value.dump();
      if (!seen.insert(key).second) continue;
      json copy = {{"id", "C-" + phase + "." + std::to_string(copies.size() + 1)},
                   {"text", shipped.spec.text},
                   {"metric", phase + "." + metric},
                   {"op", shipped.spec.op},
                   {"value", shipped.spec.value},
                   {"source", shipped.spec.source},
                   {"unit", shipped.spec.unit},
                   {"severity", enum_name(shipped.spec.severity)},
                   {"evidence", shipped.spec.evidence}};
      copies.push_back(std::move(copy));
    }
  }
  return copies;
}

}  // namespace

std::map<std::string, std::vector<Witness>> load_witnesses(const fs::path& configs_dir,
                                                           const Kinds& kinds) {
  std::map<std::string, std::vector<Witness>> all;
  std::vector<std::string> known;
  for (const auto& [name, kind] : kinds) known.push_back(name);
  const fs::path folder = configs_dir / "witnesses";
  for (const std::string& name : json_stems(folder)) {
    const fs::path path = folder / (name + ".json");
    Source source;
    const json document = source.parse(read_text(path), path.string());
    const auto file = Reader(source).read<KindWitnesses>(document);
    if (file.kind != name || !kinds.contains(name))
      source.fail(document, "kind must be a phase kind and the file's name, got " +
                                in_quotes(file.kind) + did_you_mean(name, known));
    for (size_t i = 0; i < file.witnesses.size(); ++i)
      check_witness(source, document.at("witnesses")[i], file.witnesses[i], kinds.at(name));
    all[name] = file.witnesses;
  }
  return all;
}

std::vector<ShippedCriterion> shipped_criteria(const fs::path& configs_dir, const Kinds& kinds) {
  std::vector<ShippedCriterion> all;
  for (const std::string& name : list_runbooks(configs_dir)) {
    const Runbook book = load_runbook(name, configs_dir, {}, kinds).runbook;
    std::map<std::string, const PhaseSpec*> phases;
    for (const PhaseSpec& phase : book.phases) phases[phase.id] = &phase;
    for (const PhaseSpec& phase : book.phases)
      for (const CriterionSpec& spec : phase.criteria) {
        const auto [measured, metric] = split_metric(spec.metric);
        const PhaseSpec& by = *phases.at(measured);
        all.push_back({name, parse_run(by.run).kind, metric, book.device_of(by), spec});
      }
  }
  return all;
}

bool applies(const Witness& witness, const ShippedCriterion& criterion) {
  const bool named = contains(witness.metrics, criterion.metric) ||
                     (!witness.family.empty() && glob_match(witness.family, criterion.metric));
  // A small run has no reviewed figures to be held against.
  const bool any_value =
      witness.value.is_null() && (witness.args.is_null() || !criterion.spec.value.is_object());
  return named && (witness.op.empty() || witness.op == criterion.spec.op) &&
         (any_value || witness.value == criterion.spec.value);
}

json witness_runbook(const std::string& name, const std::string& device,
                     const std::map<std::string, std::vector<Witness>>& witnesses,
                     const std::vector<ShippedCriterion>& criteria, const Kinds& kinds) {
  json phases = json::array();
  for (const auto& [kind, of_kind] : witnesses) {
    int64_t number = 0;
    for (const Witness& witness : of_kind) {
      ++number;
      if (witness.args.is_null() || witness.device != device) continue;
      std::string id = kind + "_" + std::to_string(number);
      std::ranges::replace(id, '-', '_');
      json phase = {{"id", id},
                    {"title", witness.cause},
                    {"run", run_text(kinds.at(kind), witness)},
                    {"args", witness.args},
                    {"switches", witness.switches},
                    {"processes", witness.processes},
                    {"timeout_s", 600},
                    {"criteria", criteria_of(id, witness, criteria, kind)}};
      phases.push_back(std::move(phase));
    }
  }
  return {{"schema", "nsa-runbook/1"},
          {"name", name},
          {"title", "Each criterion of the shipped runbooks with a cause that makes it fail"},
          {"scope", "Whether criteria can fail; nothing about the product."},
          {"device", device},
          {"answer",
           {{{"text",
              "Each step is given a cause that must make its criteria FAIL, so a NO-GO by FAIL of "
              "all of them is what this run is for. A criterion that passes here cannot fail in "
              "the shipped runbook that has it."}}}},
          {"phases", phases}};
}

}  // namespace harness
