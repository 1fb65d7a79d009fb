// Tables of steps, of comparisons and of history.
#include <algorithm>
#include <array>
#include <map>

#include "harness/results/number.h"
#include "harness/results/plain_figure.h"
#include "reports/escape.h"
#include "reports/markdown/sections.h"
#include "reports/markdown/table.h"

namespace reports {

using harness::Metric;
using nlohmann::json;

namespace {

constexpr size_t kOpenRows = 6;  // more rows than this and two are folded away

/// A number deep in free-form details; none where anything on the way is missing or of another
/// type.
std::optional<double> number_at(const json& details, const std::string& pointer) {
  const json::json_pointer at(pointer);
  if (!details.contains(at) || !details.at(at).is_number()) return std::nullopt;
  return details.at(at).get<double>();
}

/// A cell of a table: whatever JSON it is.
std::string cell_text(const json& cell) {
  if (cell.is_string()) return escape(cell.get<std::string>());
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

/// Rows `begin` to `end`; columns are aligned as all of them ask for.
std::string part_of_table(const json& columns, const json& rows, size_t begin, size_t end) {
  std::vector<std::string> headers;
  for (size_t c = 0; c < columns.size(); ++c)
    headers.push_back(cell_text(columns[c]) + (is_numeric_column(rows, c) ? ">" : ""));
  Table out(headers);
  for (size_t r = begin; r < end; ++r) {
    std::vector<std::string> cells;
    if (rows[r].is_array())
      for (const json& cell : rows[r]) cells.push_back(cell_text(cell));
    out.add(cells);
  }
  return out.markdown();
}

std::string arm_text(const Metric& m, const std::string& arm) {
  const auto median = number_at(m.details, "/" + arm + "/median");
  const std::string name = text_at(m.details, "/" + arm + "/arm");
  if (!median) return name.empty() ? "–" : code(name);
  return code(name) + " " +
         escape(harness::plain_figure(*median, text_at(m.details, "/time_unit")));
}

std::string percent_text(const Metric& m, const std::string& pointer) {
  const auto value = number_at(m.details, pointer);
  return value ? escape(harness::plain_figure(*value, "pct", false, {}, {}, 2)) : "not measured";
}

std::string ab_verdict_text(const Metric& m) {
  if (!m.withheld.empty()) return "withheld";
  if (m.verdict.empty()) return "none";
  const std::string throttled = text_at(m.details, "/throttled");
  return "**" + escape(m.verdict) + "**" +
         (throttled.empty() ? "" : " (clock of " + code(throttled) + " differed)");
}

bool same_but_id(const json& a, const json& b) {
  return std::ranges::all_of(std::array{"title", "columns", "rows"}, [&](const char* key) {
    return a.contains(key) && b.contains(key) && a[key] == b[key];
  });
}

/// "Every row is the same in 19 more tables: ..."
std::string also(const std::vector<std::string>& ids) {
  if (ids.empty()) return "";
  std::string out =
      "Every row is the same in " + harness::counted(ids.size(), "more table") + ": " + ids.front();
  for (size_t i = 1; i < ids.size(); ++i) out += ", " + ids[i];
  return out + ".\n\n";
}

}  // namespace

std::string text_at(const json& value, const std::string& pointer) {
  const json::json_pointer at(pointer);
  if (!value.contains(at) || !value.at(at).is_string()) return "";
  return value.at(at).get<std::string>();
}

std::string folded(const std::string& summary, const std::string& body) {
  return "<details><summary>" + summary + "</summary>\n\n" + body + "</details>\n\n";
}

std::vector<std::string> tables_markdown(const std::vector<const json*>& tables) {
  std::vector<std::string> shown;
  std::vector<const json*> first;             // of those that are alike
  std::vector<std::vector<std::string>> ids;  // of the others, Markdown
  for (const json* table : tables) {
    const auto alike =
        std::ranges::find_if(first, [&](const json* other) { return same_but_id(*other, *table); });
    if (alike == first.end()) {
      first.push_back(table);
      ids.emplace_back();
    } else {
      ids[static_cast<size_t>(alike - first.begin())].push_back(code(text_at(*table, "/id")));
    }
  }
  for (size_t i = 0; i < first.size(); ++i)
    shown.push_back(table_markdown(*first[i]) + also(ids[i]));
  return shown;
}

std::string table_markdown(const json& table) {
  static const json kNone = json::array();
  const json& columns = table.contains("columns") ? table["columns"] : kNone;
  const json& rows = table.contains("rows") ? table["rows"] : kNone;
  if (!columns.is_array() || !rows.is_array() || columns.empty()) return "";
  const std::string title =
      "**" + escape(text_at(table, "/title")) + "** " + code(text_at(table, "/id")) + "\n\n";
  if (rows.empty()) return title + "No rows.\n\n";
  const size_t all = rows.size(), open = all > kOpenRows + 2 ? kOpenRows : all;
  const std::string shown = title + part_of_table(columns, rows, 0, open);
  return open == all ? shown
                     : shown + folded(harness::counted(all - open, "further row"),
                                      part_of_table(columns, rows, open, all));
}

std::string without_figure(const std::vector<const Metric*>& metrics) {
  std::map<std::string, std::string> ids;
  for (const Metric* m : metrics) {
    std::string& same = ids[m->withheld.empty() ? m->null_reason : m->withheld];
    same += (same.empty() ? "" : ", ") + code(m->id);
  }
  std::string out;
  for (const auto& [reason, of] : ids) out += "- " + escape(reason) + ": " + of + "\n";
  return out.empty() ? out : out + "\n";
}

std::string comparisons_table(const std::vector<const Metric*>& comparisons) {
  Table table({"verdict", "figure", "baseline", "candidate", "speed-up", "pairs>", "noise floor>",
               "detectable>", "margin>"});
  std::vector<const Metric*> none;
  for (const Metric* m : comparisons) {
    if (!m->value || !m->withheld.empty()) none.push_back(m);
    if (m->value || !m->withheld.empty())
      table.add(
          {ab_verdict_text(*m), code(m->id), arm_text(*m, "baseline"), arm_text(*m, "candidate"),
           figure_text(*m), std::to_string(m->n), percent_text(*m, "/noise_floor/floor_pct"),
           percent_text(*m, "/noise_floor/mde_pct"), percent_text(*m, "/margin_in_force_pct")});
  }
  std::string out =
      table.empty() ? "No comparison of this step has a figure.\n\n" : table.markdown();
  if (!none.empty())
    out += folded(harness::counted(none.size(), "comparison") + " without a figure",
                  without_figure(none));
  return out +
         "Speed-up is baseline time over candidate time, with its 99 % interval (signed rank of "
         "paired log ratios, one pair a process). FASTER and SLOWER need the whole interval "
         "outside the margin, which is never below the noise floor of equal arms (A/A).\n\n";
}

std::string history_table(const Model& model, const std::string& phase) {
  if (!model.results.history.is_array()) return "";
  Table table({"figure", "ours", "then", "ours / then>", "source"});
  for (const json& entry : model.results.history) {
    const std::string name = text_at(entry, "/metric");
    if (!name.starts_with(phase + ".")) continue;
    const auto value = number_at(entry, "/value");
    const Metric* ours = model.metric(name);
    const bool both = ours && ours->value && value && *value != 0;
    table.add({code("M-" + name), ours ? figure_text(*ours) : "not measured in this run",
               value ? escape(harness::plain_figure(*value, text_at(entry, "/unit"))) : "–",
               both ? harness::format_number(*ours->value / *value, 3) : "–",
               escape(text_at(entry, "/source"))});
  }
  if (table.empty()) return "";
  return "**Historical figures**, measured elsewhere: context, never a result of this run\n\n" +
         table.markdown();
}

std::string samples_section(const Model& model) {
  const auto available = [](const json& row, const char* key, const std::string& unit,
                            int digits = 4) {
    const auto value = number_at(row, std::string("/") + key);
    return value ? harness::format_number(*value, digits) + unit : "not available";
  };
  const auto clock = [&](const json& row) {
    const auto lo = number_at(row, "/clock_lo_mhz"), hi = number_at(row, "/clock_hi_mhz");
    const std::string middle = available(row, "clock_mhz", " MHz");
    return lo && hi ? middle + " " + interval_text(lo, hi) : middle;
  };
  const auto throttled = [&](const json& row) {
    std::string reasons;
    if (row.contains("throttle_reasons") && row["throttle_reasons"].is_array())
      for (const json& reason : row["throttle_reasons"])
        reasons += (reasons.empty() ? ": " : ", ") + cell_text(reason);
    return available(row, "throttled", "") + reasons;
  };
  Table table({"figure", "cache", "arm", "samples>", "time>", "cycles>", "clock>",
               "throttled samples>", "thread ran>"});
  for (const Metric* comparison : model.comparisons) {
    const Metric& m = *comparison;
    if (!m.details.contains("samples") || !m.details["samples"].is_array()) continue;
    for (const json& row : m.details["samples"])
      table.add({code(m.id), escape(text_at(m.details, "/cache")), escape(text_at(row, "/arm")),
                 available(row, "n", ""),
                 available(row, "median", " " + escape(text_at(m.details, "/time_unit"))),
                 available(row, "cycles", ""), clock(row), throttled(row),
                 available(row, "ran_pct", " %", 3)});
  }
  if (table.empty()) return "";
  return "## Samples of the comparisons\n\n" +
         folded("Samples, clocks and throttling of each arm",
                table.markdown() +
                    "Medians over all samples of an arm; of the clock also the lowest and "
                    "highest, read right before each sample. Throttled: samples after which the "
                    "driver named a reason that held the clock down. Cold: the L2 of the GPU was "
                    "emptied before each call; on a CPU every call is hot. Thread ran: share of "
                    "a sample in which the calling thread had a core. Verdicts rest on the hot "
                    "figures unless a criterion names another.\n\n");
}

}  // namespace reports
