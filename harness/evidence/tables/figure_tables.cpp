#include "harness/evidence/tables/figure_tables.h"

#include <algorithm>

#include "harness/results/number.h"

namespace harness {
namespace {

using nlohmann::json;

const Metric* find(std::span<const Metric> figures, const std::string& name) {
  const auto found = std::ranges::find_if(
      figures, [&](const Metric& m) { return m.name == m.phase + "." + name; });
  return found == figures.end() ? nullptr : &*found;
}

/// "2.09 ms [2.05, 2.13]"; why there is none stands with the figure.
std::string figure_text(std::span<const Metric> figures, const std::string& name) {
  const Metric* metric = find(figures, name);
  if (!metric) return "–";
  if (!metric->withheld.empty()) return "withheld";
  if (!metric->value) return "none";
  std::string text = format_value(*metric->value, metric->unit);
  if (metric->lo && metric->hi) text += " " + format_interval(*metric->lo, *metric->hi);
  return text;
}

/// A declared argument as written in the plan, or in the only case.
json argument(const PlannedPhase& plan, const char* name) {
  const json& own = plan.cases.empty() ? plan.args : plan.cases.front().args;
  if (own.contains(name)) return own.at(name);
  return plan.args.contains(name) ? plan.args.at(name) : json();
}

std::string plain(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_null() ? "–" : value.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

std::vector<json> kind_tables(const KindSpec& kind, const std::string& phase,
                              std::span<const Metric> figures) {
  std::vector<json> tables;
  for (const KindTable& table : kind.tables) {
    if (table.rows.empty()) continue;
    json rows = json::array();
    for (const std::vector<std::string>& cells : table.rows) {
      json row = json::array();
      for (const std::string& cell : cells)
        row.push_back(cell.starts_with("=") ? figure_text(figures, cell.substr(1)) : cell);
      rows.push_back(row);
    }
    tables.push_back({{"id", phase + "." + table.id},
                      {"title", table.title},
                      {"phase", phase},
                      {"columns", table.columns},
                      {"rows", rows}});
  }
  return tables;
}

bool declares_training(const KindSpec& kind) {
  return std::ranges::any_of(kind.tables, [](const KindTable& table) {
    return table.id == "training" && table.rows.empty();
  });
}

json training_row(const PlannedPhase& plan, const PhaseResult& result,
                  const std::vector<RawGroup>& groups, std::span<const Metric> figures) {
  int64_t reached = 0;
  for (const RawGroup& group : groups) reached = std::max(reached, group.last_step);
  const std::string how =
      std::string(enum_name(result.status)) + (result.cause.empty() ? "" : " " + result.cause);
  const json seq_len = argument(plan, "seq_len");
  return json::array(
      {result.id, plain(argument(plan, "model")), plain(argument(plan, "data")),
       seq_len == 0 ? "the model's" : plain(seq_len), plain(argument(plan, "batch")),
       plain(argument(plan, "accum")),
       std::to_string(reached) + " of " + plain(argument(plan, "steps")), how,
       figure_text(figures, "speed.rate_tok_s"), figure_text(figures, "memory.peak_mib"),
       figure_text(figures, "loss.first_nat"), figure_text(figures, "loss.last20_nat")});
}

std::vector<json> training_table(const std::vector<json>& rows) {
  if (rows.empty()) return {};
  return {{{"id", "training"},
           {"title", "Training: step reached, rate, memory and loss for each (S, B)"},
           {"phase", ""},
           {"columns",
            {"step", "model", "data", "S", "B", "accum", "step reached", "ended", "rate",
             "peak memory", "first loss", "mean of last 20"}},
           {"rows", rows}}};
}

}  // namespace harness
