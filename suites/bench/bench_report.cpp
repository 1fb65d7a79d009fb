// Text of a report of the target cases, and comparison of two reports; torch-free.
#include "suites/bench/bench_report.h"

#include <cmath>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/text/plain_text.h"

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

/// A report comes from a file: its control characters must not reach the terminal.
std::string plain(const json& text) { return base::plain_text(text.get<std::string>()); }

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

void require_comparable(const std::string& before, const std::string& after) {
  for (const std::string& schema : {before, after})
    if (schema != "nsa-bench/1" && schema != "nsa-bench/2")
      throw std::invalid_argument("compare: a file is no report of nsa-bench");
  if (before != after)
    throw std::invalid_argument(
        "compare: nsa-bench/1 times each call alone, nsa-bench/2 calls in a row; run the older "
        "program's cases with this one");
}

/// Median of a pass and its interval, which is null where the samples were too few.
struct PassTime {
  double median = 0;
  std::optional<double> lo, hi;
};

/// new / old of one pass with the widest ratio that the two intervals allow.
std::string ratio_text(const std::string& id, const char* name, const PassTime& before,
                       const PassTime& after) {
  std::string text = format("%-14s %-8s %9.3f -> %9.3f ms  x%.3f", id.c_str(), name, before.median,
                            after.median, after.median / before.median);
  if (!before.lo || !before.hi || !after.lo || !after.hi)
    return text + "  no interval: too few samples\n";
  const double lo = *after.lo / *before.hi, hi = *after.hi / *before.lo;
  const char* verdict = hi < 1 ? "faster" : lo > 1 ? "slower" : "undecided";
  return text + format(" [%.3f, %.3f] %s\n", lo, hi, verdict);
}

/// The stages of a case that another code computed in one of the two.
std::string paths_text(const json& before, const json& after) {
  if (!before.contains("ran") || !after.contains("ran")) return "";  // of an older program
  std::string text;
  for (const auto& [stage, ran] : after.at("ran").items())
    if (const std::string was = before.at("ran").value(stage, ""); ran != was)
      text += plain(after.at("id")) + "  " + base::plain_text(stage) + " ran " +
              base::plain_text(was) + " -> " + plain(ran) + "\n";
  return text;
}

/// What the two reports hold of one id.
struct CasePair {
  std::vector<const json*> before, after;
};

/// The ids of both in the order of `after`, then those that only `before` has.
std::vector<std::pair<std::string, CasePair>> pairs_of(const json& before, const json& after) {
  std::vector<std::pair<std::string, CasePair>> pairs;
  const auto pair_of = [&](const json& row) -> CasePair& {
    const std::string id = row.at("id").get<std::string>();
    for (auto& [known, pair] : pairs)
      if (known == id) return pair;
    return pairs.emplace_back(id, CasePair{}).second;
  };
  for (const json& row : after.at("cases")) pair_of(row).after.push_back(&row);
  for (const json& row : before.at("cases")) pair_of(row).before.push_back(&row);
  return pairs;
}

class Comparison {
 public:
  void add(const std::string& id, const CasePair& pair) {
    const int64_t wrong = note_wrong(id, pair.after, "NEW");
    const bool was_wrong = note_wrong(id, pair.before, "OLD") > 0;
    const bool duplicate = pair.before.size() > 1 || pair.after.size() > 1;
    if (pair.before.size() > 1) note(id, "DUPLICATE", count_text(pair.before, "OLD"));
    if (pair.after.size() > 1) note(id, "DUPLICATE", count_text(pair.after, "NEW"));
    if (pair.after.empty()) note(id, "LOST", "only OLD has it");
    if (pair.before.empty()) note(id, "NEW", "only NEW has it");
    if (wrong > 0 || duplicate || pair.after.empty()) ++faults_;
    if (pair.before.empty() || pair.after.empty()) return;
    ++common_;
    if (wrong == 0 && !was_wrong && !duplicate)
      compare(id, *pair.before.front(), *pair.after.front());
  }

  /// Returns the rows; throws NotComparable where they are no comparison.
  std::string finish(int64_t* faults) const {
    if (faults != nullptr) *faults = faults_;
    std::string why;
    for (const std::string& problem : problems_) why += (why.empty() ? "" : "; ") + problem;
    if (why.empty() && compared_ == 0 && (common_ == 0 || faults_ == 0))
      why = "the two have no timed case in common; compare reports of the same cases";
    if (!why.empty()) throw NotComparable("compare: " + why, text_, faults_);
    return text_;
  }

  void add_text(const std::string& text) { text_ += text; }

 private:
  void note(const std::string& id, const char* kind, const std::string& why) {
    text_ += format("%-14s %-9s ", base::plain_text(id).c_str(), kind) + why + "\n";
  }

  static std::string count_text(const std::vector<const json*>& rows, const char* side) {
    return std::string(side) + " has it " + std::to_string(rows.size()) +
           " times; a report holds a case once";
  }

  /// A row for each problem of the case; returns their number.
  int64_t note_wrong(const std::string& id, const std::vector<const json*>& rows,
                     const char* side) {
    int64_t found = 0;
    for (const json* row : rows) {
      if (!row->contains("problems") || !row->at("problems").is_array()) {
        problem(id, "problems", "is missing or no list", side);
        continue;
      }
      for (const json& one : row->at("problems")) {
        note(id, "WRONG", "in " + std::string(side) + ": " + plain(one));
        ++found;
      }
    }
    return found;
  }

  void problem(const std::string& id, const std::string& field, const std::string& what,
               const char* side) {
    problems_.push_back("case " + base::plain_text(id) + " of " + side + ": " + field + " " + what +
                        "; time the case again");
  }

  void compare(const std::string& id, const json& before, const json& after) {
    text_ += paths_text(before, after);
    bool timed = false;
    for (const char* name : kPasses) {
      if (!before.contains(name) && !after.contains(name)) continue;
      timed = true;
      const std::optional<PassTime> old_time = time_of(id, name, before, "OLD"),
                                    new_time = time_of(id, name, after, "NEW");
      if (!old_time || !new_time) continue;
      text_ += ratio_text(base::plain_text(id), name, *old_time, *new_time);
      ++compared_;
    }
    if (!timed) problem(id, "forward, backward and step", "are missing", "OLD and NEW");
  }

  std::optional<PassTime> time_of(const std::string& id, const char* name, const json& row,
                                  const char* side) {
    const std::string field = std::string(name) + ".hot";
    const json::json_pointer at("/" + std::string(name) + "/hot");
    if (!row.contains(at) || !row.at(at).is_object()) {
      problem(id, field, "is missing", side);
      return {};
    }
    const json& hot = row.at(at);
    const auto number = [&](const char* key, bool may_be_null) -> std::optional<double> {
      if (!hot.contains(key)) {
        problem(id, field + "." + key, "is missing", side);
      } else if (const json& value = hot.at(key); !value.is_null() || !may_be_null) {
        const double ms = value.is_number() ? value.get<double>() : 0;
        if (ms > 0 && std::isfinite(ms)) return ms;
        problem(id, field + "." + key,
                "is " + base::plain_text(value.dump()) + ", want a time above 0", side);
      }
      return {};
    };
    const size_t problems = problems_.size();
    PassTime time;
    const std::optional<double> median = number("median_ms", false);
    time.lo = number("lo_ms", true);
    time.hi = number("hi_ms", true);
    if (!median || problems_.size() > problems) return {};
    time.median = *median;
    return time;
  }

  std::string text_;
  std::vector<std::string> problems_;
  int64_t common_ = 0, compared_ = 0, faults_ = 0;
};

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

std::string compare_text(const json& before, const json& after, int64_t* faults) {
  require_comparable(before.value("schema", ""), after.value("schema", ""));
  Comparison comparison;
  if (before.at("device") != after.at("device"))
    comparison.add_text("devices differ: " + plain(before.at("device")) + " and " +
                        plain(after.at("device")) + "\n");
  for (const auto& [id, pair] : pairs_of(before, after)) comparison.add(id, pair);
  return comparison.finish(faults);
}

}  // namespace suites
