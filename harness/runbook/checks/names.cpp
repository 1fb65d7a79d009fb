#include "harness/runbook/checks/names.h"

#include <algorithm>

#include "harness/stats/estimators/estimators.h"

namespace harness {
namespace {

using Names = std::vector<std::string>;

bool is_lower_alnum(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

Names split(std::string_view text, char separator) {
  Names parts;
  for (size_t start = 0;;) {
    const size_t end = text.find(separator, start);
    parts.emplace_back(text.substr(start, end - start));
    if (end == std::string_view::npos) return parts;
    start = end + 1;
  }
}

}  // namespace

const Names& metric_units() {
  static const Names kUnits = {"ms",      "us",  "s",     "tok_s", "mib",  "gb_s",
                               "tflop_s", "pct", "ratio", "count", "bool", "nat"};
  return kUnits;
}

const Names& comparison_ops() {
  static const Names kOps = {">=", "<=", ">", "<", "=="};
  return kOps;
}

const Names& evidence_kinds() {
  static const Names kEvidence = {"tests", "samples", "record", "profile"};
  return kEvidence;
}

const Names& worker_modes() {
  static const Names kModes = {"check", "time", "profile", "trace"};
  return kModes;
}

const Names& program_names() {
  static const Names kPrograms = {"builtin", "nsa-worker", "nsa-tests", "nsa-bench", "nsa-train"};
  return kPrograms;
}

const Names& device_names() {
  static const Names kDevices = {"cpu", "cuda"};
  return kDevices;
}

const Names& arg_types() {
  static const Names kTypes = {"int", "number", "string", "bool", "list", "object"};
  return kTypes;
}

const Names& known_estimators() {
  static const Names kEstimators = [] {
    Names names;
    for (const auto& [name, function] : estimators()) names.emplace_back(name);
    return names;
  }();
  return kEstimators;
}

bool is_exact_estimator(std::string_view estimator) {
  static const Names kMeasured = {"mean", "median",       "rate",
                                  "eta",  "paired_ratio", "paired_overhead"};
  return contains(known_estimators(), estimator) && !contains(kMeasured, estimator);
}

bool is_plain_name(std::string_view name) {
  constexpr size_t kLongest = 64;
  return !name.empty() && name.size() <= kLongest && name[0] >= 'a' && name[0] <= 'z' &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return is_lower_alnum(c) || c == '_'; });
}

bool is_criterion_id(std::string_view id) {
  constexpr size_t kLongest = 80;
  return id.size() > 2 && id.size() <= kLongest && id.starts_with("C-") &&
         std::all_of(id.begin() + 2, id.end(),
                     [](char c) { return is_lower_alnum(c) || c == '.' || c == '_' || c == '-'; });
}

std::string metric_name_problem(std::string_view name, std::string_view unit, bool with_phase) {
  const std::string form =
      with_phase ? "phase.subject[.case].quantity_unit" : "subject[.case].quantity_unit";
  const Names parts = split(name, '.');
  const size_t fewest = with_phase ? 3 : 2;
  if (parts.size() < fewest || parts.size() > fewest + 1) return "is not of the form " + form;
  for (const std::string& part : parts)
    if (!is_plain_name(part))
      return "is not of the form " + form + " in lower case letters, digits and _";
  if (!contains(metric_units(), unit))
    return "has the unit '" + std::string(unit) + "', which is none of " + joined(metric_units());
  const std::string suffix = "_" + std::string(unit);
  // "rate_tok_s" ends in "_s" too: of the units that fit, the longest is meant.
  std::string longest;
  for (const std::string& known : metric_units())
    if (parts.back().ends_with("_" + known) && known.size() > longest.size()) longest = known;
  if (longest != unit || parts.back().size() <= suffix.size())
    return "must end in " + suffix + " to agree with its unit";
  return "";
}

bool contains(const Names& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

std::string joined(const Names& list) {
  std::string text;
  for (const std::string& item : list) text += (text.empty() ? "" : ", ") + item;
  return text;
}

}  // namespace harness
