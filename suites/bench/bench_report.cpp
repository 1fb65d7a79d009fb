// What a run of the target cases says as text, and two runs beside each other; torch-free.
#include "suites/bench/bench_report.h"

#include <cstdio>
#include <stdexcept>

#include "nsa/program/plain_text.h"

namespace suites {
namespace {

using nlohmann::json;

constexpr const char* kPasses[] = {"forward", "backward", "step"};

template <class... Args>
std::string format(const char* pattern, Args... args) {
  char text[400];
  std::snprintf(text, sizeof text, pattern, args...);
  return text;
}

/// A report comes from a file: nothing in it may steer the terminal.
std::string plain(const json& text) { return nsa::plain_text(text.get<std::string>()); }

double median_of(const json& time) { return time.at("median_ms").get<double>(); }

std::string pass_text(const json& row, const char* name) {
  if (!row.contains(name)) return "";
  const json& pass = row.at(name);
  const double ms = median_of(pass.at("hot"));
  std::string text = format("%-14s %-8s %9.3f ms", plain(row.at("id")).c_str(), name, ms);
  if (pass.contains("target_ms"))
    text += format("  target %7.2f %s", pass.at("target_ms").get<double>(),
                   pass.at("met").get<bool>() ? "met   " : "missed");
  if (pass.contains("peer_ratio"))
    text += format("  %5.2fx of the best peer", pass.at("peer_ratio").get<double>());
  if (pass.contains("tflop_s")) text += format("  %4.0f TFLOP/s", pass.at("tflop_s").get<double>());
  if (pass.contains("gb_s")) text += format("  %5.0f GB/s", pass.at("gb_s").get<double>());
  if (pass.contains("sm_mhz"))
    text += format("  %4.0f MHz %s", pass.at("sm_mhz").get<double>(),
                   plain(pass.value("clock_events", "")).c_str());
  for (const char* library : {"cudnn", "flash"})
    if (row.contains("dense") && row.at("dense").at(library).contains(name))
      text += format("  %s %8.3f (%.2fx)", library, median_of(row["dense"][library][name]),
                     median_of(row["dense"][library][name]) / ms);
  return text + "\n";
}

/// Launches a call, and what the host takes to enqueue them.
std::string launches_text(const json& row) {
  if (!row.contains("launches") || !row.contains("host_us")) return "";
  const json &launches = row.at("launches"), &host = row.at("host_us");
  return format("%-14s launches %lld + %lld, host %.0f + %.0f us\n", plain(row.at("id")).c_str(),
                static_cast<long long>(launches.at("forward").get<int64_t>()),
                static_cast<long long>(launches.at("backward").get<int64_t>()),
                host.at("forward").get<double>(), host.at("backward").get<double>());
}

/// The certificate of the choice of blocks.
std::string selection_text(const json& row) {
  if (!row.contains("selection")) return "";
  const json& selection = row.at("selection");
  return format(
      "%-14s selection %lld rows judged in fp64, %lld with blocks exchanged within the "
      "tie bound, largest score difference %.3g\n",
      plain(row.at("id")).c_str(), static_cast<long long>(selection.at("rows").get<int64_t>()),
      static_cast<long long>(selection.at("exchanged_rows").get<int64_t>()),
      selection.at("largest_score_difference").get<double>());
}

const json* case_of(const json& report, const std::string& id) {
  for (const json& row : report.at("cases"))
    if (row.at("id") == id) return &row;
  return nullptr;
}

void require_comparable(const std::string& before, const std::string& after) {
  for (const std::string& schema : {before, after})
    if (schema != "nsa-bench/1" && schema != "nsa-bench/2")
      throw std::invalid_argument("compare: a file is no report of nsa-bench");
  if (before != after)
    throw std::invalid_argument(
        "compare: nsa-bench/1 times each call alone, nsa-bench/2 calls in a row; run the older "
        "program's cases with this one");
}

/// new / old of one pass with the widest ratio that the two intervals allow.
std::string ratio_text(const std::string& id, const char* name, const json& before,
                       const json& after) {
  const json &old_time = before.at(name).at("hot"), &new_time = after.at(name).at("hot");
  std::string text =
      format("%-14s %-8s %9.3f -> %9.3f ms  x%.3f", id.c_str(), name, median_of(old_time),
             median_of(new_time), median_of(new_time) / median_of(old_time));
  if (old_time.at("lo_ms").is_null() || new_time.at("lo_ms").is_null())
    return text + "  no interval: too few samples\n";
  const double lo = new_time.at("lo_ms").get<double>() / old_time.at("hi_ms").get<double>();
  const double hi = new_time.at("hi_ms").get<double>() / old_time.at("lo_ms").get<double>();
  const char* verdict = hi < 1 ? "faster" : lo > 1 ? "slower" : "undecided";
  return text + format(" [%.3f, %.3f] %s\n", lo, hi, verdict);
}

/// The stages of a case that another code computed in one of the two.
std::string paths_text(const json& before, const json& after) {
  if (!before.contains("ran") || !after.contains("ran")) return "";  // of an older program
  std::string text;
  for (const auto& [stage, ran] : after.at("ran").items())
    if (const std::string was = before.at("ran").value(stage, ""); ran != was)
      text += plain(after.at("id")) + "  " + nsa::plain_text(stage) + " ran " +
              nsa::plain_text(was) + " -> " + plain(ran) + "\n";
  return text;
}

}  // namespace

std::string target_bench_text(const json& report) {
  std::string text;
  for (const json& row : report.at("cases")) {
    for (const char* pass : kPasses) text += pass_text(row, pass);
    text += launches_text(row) + selection_text(row);
    for (const json& problem : row.at("problems"))
      text += plain(row.at("id")) + "  PROBLEM " + plain(problem) + "\n";
  }
  return text;
}

std::string compare_text(const json& before, const json& after) {
  require_comparable(before.value("schema", ""), after.value("schema", ""));
  std::string text;
  if (before.at("device") != after.at("device"))
    text += "devices differ: " + plain(before.at("device")) + " and " + plain(after.at("device")) +
            "\n";
  int64_t compared = 0;
  for (const json& row : after.at("cases")) {
    const std::string id = row.at("id");
    const json* old_row = case_of(before, id);
    if (old_row != nullptr) text += paths_text(*old_row, row);
    for (const char* name : kPasses) {
      if (old_row == nullptr || !row.contains(name) || !old_row->contains(name)) continue;
      text += ratio_text(nsa::plain_text(id), name, *old_row, row);
      ++compared;
    }
  }
  if (compared == 0) throw std::invalid_argument("compare: the two have no timed case in common");
  return text;
}

}  // namespace suites
