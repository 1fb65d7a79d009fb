#include "harness/cli/commands/instrument/ab_tally.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "harness/evidence/storage/files.h"
#include "harness/schema/error.h"
#include "harness/schema/field.h"
#include "harness/stats/distributions.h"
#include "harness/stats/order_statistics.h"

namespace harness::cli {
namespace {

using nlohmann::json;

constexpr double kConfidence = 0.95;
constexpr auto kVerdicts =
    std::to_array<const char*>({"FASTER", "SLOWER", "EQUIVALENT", "INCONCLUSIVE"});
constexpr auto kCriteria =
    std::to_array<const char*>({"PASS", "FAIL", "INCONCLUSIVE", "NOT_EVALUATED"});

json number(const std::optional<double>& value) { return value ? json(*value) : json(); }

double load() {
  double average = 0;
  return ::getloadavg(&average, 1) == 1 ? average : 0;
}

int64_t count_of(const std::map<std::string, int64_t>& counts, const char* name) {
  const auto found = counts.find(name);
  return found == counts.end() ? 0 : found->second;
}

std::string table_row(const std::string& name, int64_t hits, int64_t runs) {
  return fmt::format("  {:<24}{:>6}   {:>5.1f} to {:>5.1f} %\n", name, hits,
                     100 * stats::share_lower_bound(hits, runs, kConfidence),
                     100 * stats::share_upper_bound(hits, runs, kConfidence));
}

json counts_json(const std::map<std::string, int64_t>& counts, int64_t runs) {
  json all = json::object();
  for (const auto& [name, hits] : counts)
    all[name] = {{"runs", hits},
                 {"share_at_least", stats::share_lower_bound(hits, runs, kConfidence)},
                 {"share_at_most", stats::share_upper_bound(hits, runs, kConfidence)}};
  return all;
}

}  // namespace

AbRow row_of(const Results& results, int64_t seed) {
  const auto figure = std::ranges::find_if(
      results.metrics, [](const Metric& metric) { return !metric.verdict.empty(); });
  if (figure == results.metrics.end()) {
    const std::string why = results.phases.empty() ? "no phase" : results.phases.front().reason;
    throw Error("ab-rate: the run has no paired figure with a verdict: " + why);
  }
  const auto judged = std::ranges::find(results.criteria, figure->name, &CriterionResult::metric);
  if (judged == results.criteria.end())
    throw Error("ab-rate: the runbook has no criterion on " + figure->name);
  AbRow row{.seed = seed,
            .verdict = figure->verdict,
            .criterion = std::string(enum_name(judged->verdict)),
            .figure = {{"value", number(figure->value)},
                       {"lo", number(figure->lo)},
                       {"hi", number(figure->hi)},
                       {"n", figure->n},
                       {"confirmed", figure->details.contains("confirmation")}}};
  for (const char* fact : {"noise_floor", "processes"})
    if (figure->details.contains(fact)) row.figure[fact] = figure->details[fact];
  return row;
}

AbTally::AbTally(const json& header, const std::filesystem::path& file)
    : file_(file), header_(header) {
  if (!std::filesystem::exists(file)) {
    append(header);
    return;
  }
  std::ifstream in(file);
  std::string text;
  if (!std::getline(in, text) || json::parse(text, nullptr, false) != header)
    throw ConfigError("ab-rate: " + file.string() +
                      " must be new, or counts of the same runbook, arguments and hardware; its "
                      "first line must be " +
                      header.dump());
  bool cut = false;
  while (std::getline(in, text)) {
    const json line = json::parse(text, nullptr, false);
    if (line.is_object() && line.contains("seconds")) take(line);
    cut = in.eof();  // it has no end: what comes next shall stand on a line of its own
  }
  if (cut) std::ofstream(file, std::ios::app) << "\n";
}

void AbTally::take(const json& line) {
  ++verdicts_[line.at("verdict").get<std::string>()];
  ++criteria_[line.at("criterion").get<std::string>()];
  seconds_.push_back(line.at("seconds").get<double>());
}

void AbTally::append(const json& line) const {
  std::ofstream out(file_, std::ios::app);
  out << line.dump() << "\n" << std::flush;
  if (!out) throw Error("cannot write " + file_.string());
}

void AbTally::add(const AbRow& row, double seconds) {
  const json line = {{"seed", row.seed},     {"verdict", row.verdict}, {"criterion", row.criterion},
                     {"figure", row.figure}, {"seconds", seconds},     {"load", load()}};
  append(line);
  take(line);
}

std::string AbTally::short_text() const {
  std::string text;
  for (const auto& [verdict, hits] : verdicts_)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", hits, verdict);
  return text;
}

std::string AbTally::text() const {
  if (runs() == 0) return "no run ended\n";
  std::string text = fmt::format(
      "{} on {}, {}: {} runs, {:.2f} s each (median)\n  the figure{:>24}   share, 95 % each side\n",
      header_.at("runbook").get<std::string>(), header_.at("device").get<std::string>(),
      header_.at("args").dump(), runs(), stats::median(seconds_), "runs");
  for (const char* name : kVerdicts) text += table_row(name, count_of(verdicts_, name), runs());
  text += "  its criterion\n";
  for (const char* name : kCriteria)
    if (const int64_t hits = count_of(criteria_, name); hits > 0 || name == kCriteria[1])
      text += table_row(name, hits, runs());
  return text + "  every run: " + file_.string() + "\n";
}

json AbTally::as_json() const {
  json all = header_;
  all["runs"] = runs();
  if (runs() == 0) return all;
  all["confidence"] = kConfidence;
  all["figure"] = counts_json(verdicts_, runs());
  all["criterion"] = counts_json(criteria_, runs());
  all["seconds_median"] = stats::median(seconds_);
  all["file"] = file_.string();
  return all;
}

}  // namespace harness::cli
