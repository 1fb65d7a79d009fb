#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/json/depth.h"
#include "base/protocol/messages.h"

namespace base::protocol {

/// What the engine planned for a group: the rules of README.md are checked against it.
struct Expectation {
  std::string mode = "check";
  std::vector<std::string> cases;
  bool asks_build_id = false;  ///< `hello` must have one, as the engine knows its own
};

struct Line {
  int64_t number = 0;  ///< 1-based line of the file
  double t = 0;        ///< seconds since hello
  Message message;
};

/// A broken rule. Names: NO_HELLO, HELLO_TWICE, GARBAGE (not a line of the protocol), NON_FINITE,
/// BAD_TIME (a line before `hello`, or a sample that took less than no time), FOREIGN_CASE,
/// DUPLICATE_CASE, DUPLICATE_CHECK, DUPLICATE_SAMPLE, MISSING_CASE, BAD_MODE (a sample outside
/// `time`), AFTER_DONE, BAD_COUNT, NO_DONE, NO_BUILD_ID (where one is asked for).
struct Violation {
  std::string name;
  int64_t line = 0;  ///< 0: the file as a whole
  std::string detail;
};

/// Reads raw evidence, as a whole or as it grows, and holds it to every rule of README.md. A half
/// line at the end is what a killed process leaves: it is not counted and no violation by itself
/// (the missing `done` is).
///
///   LineReader reader({.mode = "time", .cases = {"v2"}});
///   reader.feed(bytes);                 // any number of times, cut anywhere
///   auto violations = reader.finish();  // empty: the lines count
class LineReader {
 public:
  explicit LineReader(Expectation want) : want_(std::move(want)) {}

  void feed(std::string_view bytes) {
    tail_ += bytes;
    size_t from = 0;
    for (size_t end; (end = tail_.find('\n', from)) != std::string::npos; from = end + 1)
      take(std::string_view(tail_).substr(from, end - from));
    tail_.erase(0, from);
    if (tail_.size() > kMaxLine) {
      violate("GARBAGE", "a line is longer than 16 MiB");
      tail_.clear();
    }
  }

  /// Closes the book: rules about the whole file. Returns every violation in the order found.
  std::vector<Violation> finish() {
    number_ = 0;
    if (lines_.empty()) violate("NO_HELLO", "no line of the protocol was written");
    for (const auto& id : want_.cases)
      if (!ended_.contains(id)) violate("MISSING_CASE", "no case line for '" + id + "'");
    if (!done_) violate("NO_DONE", "the last line is not `done`");
    if (done_ && !tail_.empty()) violate("AFTER_DONE", "half a line after `done`");
    return violations_;
  }

  const std::vector<Line>& lines() const { return lines_; }               ///< the well-formed ones
  const std::map<std::string, CaseEnd>& ended() const { return ended_; }  ///< by case id
  size_t half_line_bytes() const { return tail_.size(); }
  bool done() const { return done_; }

 private:
  static constexpr size_t kMaxLine = size_t{16} << 20;

  void violate(const char* name, std::string detail) {
    violations_.push_back({name, number_, std::move(detail)});
  }

  void take(std::string_view text) {
    number_++;
    if (done_) return violate("AFTER_DONE", "a line after `done`");
    if (base::nests_too_deep(text))
      return violate("GARBAGE", "nests deeper than " + std::to_string(base::kMaxDepth) + " levels");
    nlohmann::json object;
    try {
      object = nlohmann::json::parse(text);
    } catch (const nlohmann::json::exception& e) {
      return violate(names_non_finite(text) || e.id == 406 ? "NON_FINITE" : "GARBAGE",
                     detail::shown(std::string(text)));
    }
    try {
      accept(read_line(std::move(object)));
    } catch (const Error& e) {
      violate("GARBAGE", e.what());
    }
  }

  static bool names_non_finite(std::string_view text) {
    for (const auto word : {":NaN", ": NaN", ":nan", ": nan", ":-nan", ":inf", ":-inf", "Infinity"})
      if (text.find(word) != std::string_view::npos) return true;
    return false;
  }

  Line read_line(nlohmann::json object) const {
    if (!object.is_object()) throw Error("an object is wanted, got " + detail::shown(object));
    Line line{.number = number_, .t = 0, .message = {}};
    const auto type =
        detail::read_value<std::string>(object.value("type", nlohmann::json()), "type");
    line.t = detail::read_value<double>(object.value("t", nlohmann::json()), "t");
    object.erase("type");
    object.erase("t");
    if (!read_message(type, object, line.message, std::make_index_sequence<kTypes>()))
      throw Error("unknown type " + detail::shown(type));
    return line;
  }

  static constexpr size_t kTypes = std::variant_size_v<Message>;

  template <size_t... kIndex>
  static bool read_message(const std::string& type, const nlohmann::json& object, Message& into,
                           std::index_sequence<kIndex...>) {
    const auto read_if = [&]<class T>(std::type_identity<T>) {
      if (type != T::kType) return false;
      into = from_object<T>(object);
      return true;
    };
    return (read_if(std::type_identity<std::variant_alternative_t<kIndex, Message>>()) || ...);
  }

  void accept(Line line) {
    if (lines_.empty() != std::holds_alternative<Hello>(line.message))
      violate(lines_.empty() ? "NO_HELLO" : "HELLO_TWICE", "`hello` must be the first line, once");
    if (!(line.t >= 0)) violate("BAD_TIME", "t is " + std::to_string(line.t));
    std::visit([&](const auto& message) { check(message); }, line.message);
    lines_.push_back(std::move(line));
  }

  void check_case(const std::string& id) {
    for (const auto& planned : want_.cases)
      if (planned == id) return;
    violate("FOREIGN_CASE", "case '" + id + "' was not planned");
  }
  void check_optional_case(const std::string& id) {
    if (!id.empty()) check_case(id);
  }
  /// A number is null only with its reason.
  void check_number(const nlohmann::json& value, const std::string& reason,
                    const std::string& name) {
    if (value.is_null() && reason.empty())
      violate("NON_FINITE", name + " is null without a reason");
  }

  void check(const Hello& hello) {
    if (hello.v != 1)
      violate("GARBAGE", "protocol version " + std::to_string(hello.v) + ", want 1");
    if (want_.asks_build_id && hello.build_id.empty())
      violate("NO_BUILD_ID", "`hello` of " + hello.program + " has no build id");
  }
  void check(const Beat& beat) { check_optional_case(beat.case_id); }
  void check(const Check& line) {
    check_optional_case(line.case_id);
    // Counts of checks are criteria: one that holds counts once.
    if (line.ok && !held_.emplace(line.case_id, line.id).second)
      violate("DUPLICATE_CHECK",
              "check '" + line.id + "' of case '" + line.case_id + "' was reported to hold before");
  }
  void check(const Sample& sample) {
    check_case(sample.case_id);
    check_number(detail::write_value(sample.value), sample.reason, sample.series);
    const bool is_time = sample.unit == "ms" || sample.unit == "us" || sample.unit == "s";
    if (is_time && sample.value && *sample.value < 0)
      violate("BAD_TIME", "sample '" + sample.series + "' took " + std::to_string(*sample.value) +
                              " " + sample.unit);
    if (!samples_.emplace(sample.case_id, sample.series, sample.round, sample.order).second)
      violate("DUPLICATE_SAMPLE", "sample '" + sample.series + "' of round " +
                                      std::to_string(sample.round) + ", order " +
                                      std::to_string(sample.order) + " was reported before");
    if (want_.mode != "time")
      violate("BAD_MODE",
              "sample '" + sample.series + "' in mode " + want_.mode + "; only `time` may");
  }
  void check(const Metric& metric) {
    check_optional_case(metric.case_id);
    check_number(metric.value, metric.reason, metric.name);
    if (!metric.value.is_number() && !metric.value.is_boolean() && !metric.value.is_null())
      throw Error("value of metric " + metric.name + " must be a number, bool or null");
  }
  void check(const Table& table) {
    check_optional_case(table.case_id);
    for (const auto& row : table.rows)
      if (!row.is_array() || row.size() != table.columns.size())
        throw Error("a row of table " + table.id + " must have as many cells as columns");
  }
  void check(const Finding& finding) {
    if (finding.priority != "immediate" && finding.priority != "follow-up")
      throw Error("priority must be immediate or follow-up, got " + finding.priority);
  }
  void check(const Artifact&) {}
  void check(const CaseEnd& end) {
    check_case(end.case_id);
    const bool known = end.status == "ok" || end.status == "failed" || end.status == "deferred" ||
                       end.status == "partial";
    if (!known)
      throw Error("status must be ok, failed, deferred or partial, got " +
                  detail::shown(end.status));
    if (end.status != "ok" && end.status != "failed" && end.reason.find(": ") == std::string::npos)
      throw Error("reason of a case that is " + end.status + " must be CAUSE: text, got " +
                  detail::shown(end.reason));
    if (!ended_.emplace(end.case_id, end).second)
      violate("DUPLICATE_CASE", "case '" + end.case_id + "' ended twice");
  }
  void check(const Done& done) {
    done_ = true;
    if (done.lines != number_ - 1)
      violate("BAD_COUNT", "`done` counts " + std::to_string(done.lines) + " lines, the file has " +
                               std::to_string(number_ - 1));
  }

  Expectation want_;
  std::string tail_;
  int64_t number_ = 0;
  bool done_ = false;
  std::vector<Line> lines_;
  std::map<std::string, CaseEnd> ended_;
  std::set<std::tuple<std::string, std::string, int64_t, int64_t>> samples_;
  std::set<std::pair<std::string, std::string>> held_;  ///< case and check
  std::vector<Violation> violations_;
};

/// A whole file at once.
struct Transcript {
  std::vector<Line> lines;
  std::map<std::string, CaseEnd> ended;
  std::vector<Violation> violations;  ///< empty: the lines count
  size_t half_line_bytes = 0;
};
inline Transcript read_transcript(std::string_view bytes, Expectation want) {
  LineReader reader(std::move(want));
  reader.feed(bytes);
  auto violations = reader.finish();
  return {reader.lines(), reader.ended(), std::move(violations), reader.half_line_bytes()};
}

}  // namespace base::protocol
