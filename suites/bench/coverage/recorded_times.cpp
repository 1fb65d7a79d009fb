#include "suites/bench/coverage/recorded_times.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <stdexcept>
#include <vector>

#include "suites/bench/coverage/text_table.h"

namespace suites {
namespace {

using nlohmann::json;

/// One column: cases of a report in one type.
struct Recorded {
  const char *file, *type, *note;
};
constexpr Recorded kRecorded[] = {{"targets-h200.json", "bf16", ""},
                                  {"targets-h200-sm80.json", "bf16", ", sm_80 kernels"},
                                  {"targets-h100.json", "bf16", ""},
                                  {"cpu-epyc.json", "fp32", ""},
                                  {"cpu-epyc.json", "bf16", ""}};

/// Sizes of a case, by which rows are sorted.
struct TimedCall {
  int dk = 0, dv = 0, heads = 0, kv_heads = 0, tokens = 0, batch = 0;
  auto operator<=>(const TimedCall&) const = default;
};

TimedCall call_of(const std::string& config) {
  static const std::regex sizes("B([0-9]+)_S([0-9]+)_H([0-9]+)x([0-9]+)_d([0-9]+)x([0-9]+)_.*");
  std::smatch found;
  if (!std::regex_match(config, found, sizes))
    throw std::invalid_argument("config '" + config + "' has no sizes");
  const auto number = [&](size_t i) { return std::stoi(found[i]); };
  return {number(5), number(6), number(3), number(4), number(2), number(1)};
}

std::string three_digits(double ms) {
  char text[32];
  std::snprintf(text, sizeof text, ms < 1000 ? "%.3g" : "%.0f", ms);
  return text;
}

/// "2.28 / 5.12"; empty where a case has no times.
std::string times_of(const json& one) {
  if (!one.at("problems").empty()) return "";
  const json& arm = one.contains("ours") ? one.at("ours") : one;
  std::string text;
  for (const char* pass : {"forward", "backward"}) {
    if (!arm.contains(pass)) return "";
    const json& timed = arm.at(pass);
    const json& ms = (timed.contains("hot") ? timed.at("hot") : timed).at("median_ms");
    text += (text.empty() ? "" : " / ") + three_digits(ms.get<double>());
  }
  return text;
}

struct TimesTable {
  std::vector<std::string> header{"dk/dv", "heads", "tokens", "B"};
  std::map<TimedCall, std::vector<std::string>> rows;
  std::string missing;

  void add(const Recorded& column, const json& report) {
    const size_t index = header.size() - 4;
    std::string name = report.at("device").get<std::string>() + column.note;
    if (report.contains("threads")) name += ", " + report.at("threads").dump() + " threads";
    header.push_back(name + ", " + column.type);
    for (const json& one : report.at("cases")) {
      const std::string times = times_of(one);
      if (one.at("dtype") != column.type || times.empty()) continue;
      std::vector<std::string>& row = rows[call_of(one.at("config"))];
      row.resize(std::size(kRecorded), "-");
      row[index] = times;
    }
  }
  std::string text(bool markdown) const {
    std::vector<std::vector<std::string>> lines{header};
    for (const auto& [call, times] : rows) {
      lines.push_back({std::to_string(call.dk) + "/" + std::to_string(call.dv),
                       std::to_string(call.heads) + "/" + std::to_string(call.kv_heads),
                       std::to_string(call.tokens), std::to_string(call.batch)});
      lines.back().insert(lines.back().end(), times.begin(),
                          times.begin() + static_cast<std::ptrdiff_t>(header.size() - 4));
    }
    return table_text(lines, markdown);
  }
};

}  // namespace

std::string recorded_times(const std::string& folder, bool markdown) {
  TimesTable table;
  for (const Recorded& column : kRecorded) {
    const std::string path = folder + "/" + column.file;
    std::ifstream in(path);
    if (!in) {
      table.missing += "No report " + path + ".\n";
      continue;
    }
    try {
      table.add(column, json::parse(in));
    } catch (const json::exception& error) {
      throw std::invalid_argument(path + ": is no report of nsa-bench: " + error.what());
    }
  }
  return (table.rows.empty() ? "" : table.text(markdown)) + table.missing;
}

}  // namespace suites
