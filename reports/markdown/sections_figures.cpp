#include <algorithm>

#include "harness/results/number.h"
#include "reports/escape.h"
#include "reports/markdown/sections.h"
#include "reports/markdown/table.h"
#include "reports/profile.h"

namespace reports {

using harness::Metric;
using nlohmann::json;

namespace {

constexpr std::string_view kRevisions = "editions";  // table of what changed between revisions
constexpr size_t kOpenFigures = 60;                  // more rows than this are folded away

/// A number deep in free-form details; none where anything on the way is missing or of another
/// type.
std::optional<double> number_at(const json& details, const std::string& pointer) {
  const json::json_pointer at(pointer);
  if (!details.contains(at) || !details.at(at).is_number()) return std::nullopt;
  return details.at(at).get<double>();
}

std::string text_at(const json& details, const std::string& pointer) {
  const json::json_pointer at(pointer);
  if (!details.contains(at) || !details.at(at).is_string()) return "";
  return details.at(at).get<std::string>();
}

std::string arm_text(const Metric& m, const std::string& arm) {
  const auto median = number_at(m.details, "/" + arm + "/median");
  const std::string name = text_at(m.details, "/" + arm + "/arm");
  if (!median) return name.empty() ? "–" : code(name);
  return code(name) + " " +
         escape(harness::format_value(*median, text_at(m.details, "/time_unit")));
}

std::string percent_text(const Metric& m, const std::string& pointer) {
  const auto value = number_at(m.details, pointer);
  return value ? harness::format_number(*value, 3) + " %" : "not measured";
}

std::string ab_verdict_text(const Metric& m) {
  if (!m.withheld.empty()) return "withheld";
  if (m.verdict.empty()) return "none";
  const std::string throttled = text_at(m.details, "/throttled");
  return "**" + escape(m.verdict) + "**" +
         (throttled.empty() ? "" : " (clock of " + code(throttled) + " differed)");
}

std::string folded(const std::string& summary, const std::string& body) {
  return "<details><summary>" + summary + "</summary>\n\n" + body + "</details>\n\n";
}

/// A cell of a phase table: whatever JSON it is.
std::string cell_text(const json& cell) {
  if (cell.is_string()) return escape(cell.get<std::string>());
  if (cell.is_number_integer()) return harness::format_number(cell.get<double>());
  if (cell.is_number()) return harness::format_number(cell.get<double>());
  if (cell.is_boolean()) return cell.get<bool>() ? "yes" : "no";
  if (cell.is_null()) return "–";
  return escape(cell.dump(-1, ' ', false, json::error_handler_t::replace));
}

bool is_numeric_column(const json& rows, size_t column) {
  bool any = false;
  for (const json& row : rows) {
    if (!row.is_array() || column >= row.size() || row[column].is_null()) continue;
    if (!row[column].is_number()) return false;
    any = true;
  }
  return any;
}

std::string available(const json& row, const char* key, const std::string& unit, int digits = 4) {
  const auto value = number_at(row, std::string("/") + key);
  return value ? harness::format_number(*value, digits) + unit : "not available";
}

std::string clock_text(const json& row) {
  const std::string middle = available(row, "clock_mhz", " MHz");
  const auto lo = number_at(row, "/clock_lo_mhz"), hi = number_at(row, "/clock_hi_mhz");
  return lo && hi ? middle + " " + interval_text(lo, hi) : middle;
}

std::string throttle_text(const json& row) {
  const auto count = number_at(row, "/throttled");
  if (!count) return "not available";
  std::string reasons;
  if (row.contains("throttle_reasons") && row["throttle_reasons"].is_array())
    for (const json& reason : row["throttle_reasons"])
      reasons += (reasons.empty() ? ": " : ", ") + cell_text(reason);
  return harness::format_number(*count) + reasons;
}

}  // namespace

std::string table_markdown(const json& table) {
  static const json kNone = json::array();
  const json& columns = table.contains("columns") ? table["columns"] : kNone;
  const json& rows = table.contains("rows") ? table["rows"] : kNone;
  if (!columns.is_array() || !rows.is_array() || columns.empty()) return "";
  std::vector<std::string> headers;
  for (size_t c = 0; c < columns.size(); ++c)
    headers.push_back(cell_text(columns[c]) + (is_numeric_column(rows, c) ? ">" : ""));
  Table out(headers);
  for (const json& row : rows) {
    std::vector<std::string> cells;
    if (row.is_array())
      for (const json& cell : row) cells.push_back(cell_text(cell));
    out.add(cells);
  }
  const std::string phase = text_at(table, "/phase");
  return "### " + escape(text_at(table, "/title")) + "\n\n" +
         (out.empty() ? "No rows.\n\n" : out.markdown()) + "Table " + code(text_at(table, "/id")) +
         (phase.empty() ? "" : " of step " + code("P-" + phase)) + ".\n\n";
}

std::string comparisons_section(const Model& model, size_t max_rows) {
  if (model.comparisons.empty()) return "";
  Table table({"verdict", "figure", "baseline", "candidate", "speed-up>", "99 %", "95 %", "n>",
               "A/A noise floor>", "detectable>", "margin>"});
  std::string withheld;
  for (size_t i = 0; i < std::min(max_rows, model.comparisons.size()); ++i) {
    const Metric& m = *model.comparisons[i];
    table.add({ab_verdict_text(m), code(m.id), arm_text(m, "baseline"), arm_text(m, "candidate"),
               figure_text(m), interval_text(m.lo, m.hi), interval_text(m.lo95, m.hi95),
               std::to_string(m.n), percent_text(m, "/noise_floor/floor_pct"),
               percent_text(m, "/noise_floor/mde_pct"), percent_text(m, "/margin_in_force_pct")});
    if (!m.value || !m.withheld.empty())
      withheld +=
          "- " + code(m.id) + ": " + escape(m.withheld.empty() ? m.null_reason : m.withheld) + "\n";
  }
  std::string out =
      "## A/B comparisons\n\n" + table.markdown() +
      "Speed-up is baseline time over candidate time: above 1 the candidate is faster. "
      "Hodges-Lehmann estimate and exact signed-rank intervals of paired log ratios, one pair "
      "a process. FASTER and SLOWER need the whole 99 % interval outside the margin, which "
      "is never below the noise floor of identical arms (A/A).\n\n";
  if (!withheld.empty()) out += "Without a figure:\n\n" + withheld + "\n";
  if (model.comparisons.size() > max_rows)
    out += "Not shown here: " + std::to_string(model.comparisons.size() - max_rows) +
           " comparisons; report.md has them.\n\n";
  return out;
}

std::string samples_section(const Model& model) {
  Table table({"figure", "cache", "arm", "samples>", "time>", "cycles>", "clock>",
               "throttled samples>", "thread ran>"});
  for (const Metric* comparison : model.comparisons) {
    const Metric& m = *comparison;
    if (!m.details.contains("samples") || !m.details["samples"].is_array()) continue;
    for (const json& row : m.details["samples"])
      table.add({code(m.id), escape(text_at(m.details, "/cache")), escape(text_at(row, "/arm")),
                 available(row, "n", ""),
                 available(row, "median", " " + escape(text_at(m.details, "/time_unit"))),
                 available(row, "cycles", ""), clock_text(row), throttle_text(row),
                 available(row, "ran_pct", " %", 3)});
  }
  if (table.empty()) return "";
  return "### Samples of the comparisons\n\n" + table.markdown() +
         "Medians over all samples of an arm; of the clock also the lowest and highest, read right "
         "before each sample. Throttled: samples after which the driver named a reason that held "
         "the "
         "clock down. Cold: the L2 of the GPU was emptied before each call; on a CPU every call is "
         "hot. Thread ran: share of a sample in which the calling thread had a core. Verdicts rest "
         "on the hot figures unless a criterion names another.\n\n";
}

std::string history_section(const Model& model) {
  if (!model.results.history.is_array() || model.results.history.empty()) return "";
  Table table(
      {"figure", "ours", "historical", "ours / historical>", "source of the historical figure"});
  for (const json& entry : model.results.history) {
    const std::string name = text_at(entry, "/metric");
    const auto value = number_at(entry, "/value");
    const Metric* ours = model.metric(name);
    const bool both = ours && ours->value && value && *value != 0;
    table.add({code("M-" + name), ours ? figure_text(*ours) : "not measured in this run",
               value ? escape(harness::format_value(*value, text_at(entry, "/unit"))) : "–",
               both ? harness::format_number(*ours->value / *value, 3) : "–",
               escape(text_at(entry, "/source"))});
  }
  return "## Historical figures\n\n" + table.markdown() +
         "Measured elsewhere, on other hardware and software: context, never a result of this "
         "run.\n\n";
}

std::string figures_section(const Model& model) {
  std::string out = "## Figures\n\n";
  if (model.results.metrics.empty()) return out + "**No step produced a figure.**\n\n";
  Table table({"figure", "value>", "99 %", "95 %", "n>", "method", "evidence"});
  std::string missing;
  for (const Metric& m : model.results.metrics) {
    table.add({code(m.id), figure_text(m), interval_text(m.lo, m.hi), interval_text(m.lo95, m.hi95),
               std::to_string(m.n), escape(m.method),
               (m.samples.empty() ? std::string("–") : evidence_text(model, &m))});
    if (!m.value || !m.withheld.empty())
      missing += "- " + code(m.id) + ": " +
                 escape(m.null_reason.empty() ? m.withheld : m.null_reason) + "\n";
  }
  const std::string body =
      table.markdown() + (missing.empty() ? "" : "Without a figure:\n\n" + missing + "\n");
  if (model.results.metrics.size() <= kOpenFigures) return out + body;
  return out + folded(std::to_string(model.results.metrics.size()) + " figures", body);
}

std::string hotspots_section(const Model& model) {
  std::string body;
  if (model.results.tables.is_array())
    for (const json& table : model.results.tables)
      if (is_profile_table(table)) body += table_markdown(table);
  return "## Hotspots\n\n" +
         (body.empty() ? std::string("No step of this run took a profile.\n\n") : body);
}

std::string tables_section(const Model& model) {
  if (!model.results.tables.is_array()) return "";
  std::string body;
  for (const json& table : model.results.tables) {
    const std::string id = text_at(table, "/id");
    if (id.find("catch_matrix") == std::string::npos && id != kRevisions &&
        !is_profile_table(table))
      body += table_markdown(table);
  }
  return body.empty() ? "" : "## Tables of the steps\n\n" + body;
}

std::string revisions_section(const Model& model) {
  if (!model.results.tables.is_array()) return "";
  for (const json& table : model.results.tables)
    if (text_at(table, "/id") == kRevisions)
      return "## Editions\n\nThis report supersedes the run whose ledger head is " +
             code(model.results.run.supersedes) + ".\n\n" + table_markdown(table);
  return "";
}

std::string self_test_section(const Model& model) {
  std::string body;
  if (model.results.tables.is_array())
    for (const json& table : model.results.tables)
      if (text_at(table, "/id").find("catch_matrix") != std::string::npos)
        body += table_markdown(table);
  return "## Appendix: what the self test caught\n\n" +
         (body.empty() ? std::string("Not run for this build.\n\n") : body);
}

}  // namespace reports
