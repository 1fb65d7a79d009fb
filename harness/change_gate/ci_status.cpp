#include "harness/change_gate/ci_status.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <pugixml.hpp>
#include <utility>

namespace harness {
namespace {

using JunitNames = std::initializer_list<std::string_view>;

bool is_junit_name(std::string_view name, JunitNames names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

int64_t children_named(const pugi::xml_node& node, JunitNames names) {
  const auto all = node.children();
  return std::count_if(all.begin(), all.end(), [&](const pugi::xml_node& child) {
    return is_junit_name(child.name(), names);
  });
}

/// The cases of a suite. `retries`: failed attempts besides the one that decides, which some
/// writers count as tests and failures.
struct CaseTally {
  int64_t tests = 0, failed = 0, skipped = 0, disabled = 0, retries = 0;

  CaseTally& operator+=(const CaseTally& other) {
    tests += other.tests;
    failed += other.failed;
    skipped += other.skipped;
    disabled += other.disabled;
    retries += other.retries;
    return *this;
  }
};

class CaseCounter {
 public:
  explicit CaseCounter(CiStatus& status) : status_(status) {}

  /// Takes in what lies below `suite`, suites within it too.
  CaseTally count(const pugi::xml_node& suite) {
    CaseTally own, nested;
    for (const pugi::xml_node& child : suite.children()) {
      const std::string_view name = child.name();
      if (name == "testcase")
        own += count_case(child);
      else if (is_junit_name(name, {"failure", "error"}))
        own += failed_outside_of_cases(suite);
      else if (!is_junit_name(name, {"properties", "system-out", "system-err"}))
        nested += count(child);
    }
    CaseTally all = own;
    all += nested;
    compare_counters(suite, own, all);
    return all;
  }

  /// Tests that CTest could not start (no program, a dependency that failed), which it counts as
  /// skipped in the file and as failed in its verdict.
  int64_t not_started() const { return not_started_; }
  const std::string& first_not_started() const { return first_not_started_; }

  /// The first thing that was wrong with a counter, a status or a result.
  const std::string& problem() const { return problem_; }

 private:
  enum class Outcome { kRan, kSkipped, kDisabled, kFailed };

  void note(const std::string& problem) {
    if (problem_.empty()) problem_ = problem;
  }

  static std::string name_of(const pugi::xml_node& test) {
    return std::string(test.attribute("classname").as_string()) + "." +
           test.attribute("name").as_string();
  }

  void check_word(const pugi::xml_node& test, const char* attribute, JunitNames known) {
    const pugi::xml_attribute word = test.attribute(attribute);
    if (!word || is_junit_name(word.value(), known)) return;
    std::string list;
    for (const std::string_view one : known) list += (list.empty() ? "" : ", ") + std::string(one);
    note("has the unknown " + std::string(attribute) + " '" + word.value() + "' at test " +
         name_of(test) + "; known: " + list);
  }

  /// Failure outranks everything. rerunFailure and rerunError belong to a test that failed every
  /// attempt, flakyFailure and flakyError to one that passed at last (Maven Surefire).
  static Outcome outcome_of(const pugi::xml_node& test) {
    const std::string_view status = test.attribute("status").value(),
                           result = test.attribute("result").value();
    if (status == "fail" ||
        children_named(test, {"failure", "error", "rerunFailure", "rerunError"}) > 0)
      return Outcome::kFailed;
    if (result == "skipped" || test.child("skipped")) return Outcome::kSkipped;
    if (is_junit_name(status, {"notrun", "disabled"}) || result == "suppressed")
      return Outcome::kDisabled;
    return Outcome::kRan;
  }

  /// The message of a test that asked to be skipped is SKIP_RETURN_CODE or
  /// SKIP_REGULAR_EXPRESSION_MATCHED.
  static bool is_skip_of_ctest(const pugi::xml_node& test) {
    const std::string_view message = test.child("skipped").attribute("message").value();
    return std::string_view(test.attribute("status").value()) != "notrun" ||
           test.attribute("result") || message.empty() || message.starts_with("SKIP_");
  }

  CaseTally count_case(const pugi::xml_node& test) {
    check_word(test, "status", {"run", "fail", "notrun", "disabled"});
    check_word(test, "result", {"completed", "skipped", "suppressed"});
    const Outcome outcome = outcome_of(test);
    const int64_t flaky = children_named(test, {"flakyFailure", "flakyError"});
    if (outcome == Outcome::kRan && flaky > 0 && ++status_.flaky == 1)
      status_.first_flaky = name_of(test);
    if (outcome == Outcome::kFailed) note_failed(name_of(test));
    if (outcome == Outcome::kSkipped && !is_skip_of_ctest(test) && ++not_started_ == 1)
      first_not_started_ = name_of(test);
    return {.tests = 1,
            .failed = outcome == Outcome::kFailed,
            .skipped = outcome == Outcome::kSkipped,
            .disabled = outcome == Outcome::kDisabled,
            .retries = flaky + children_named(test, {"rerunFailure", "rerunError"})};
  }

  CaseTally failed_outside_of_cases(const pugi::xml_node& suite) {
    note_failed(std::string(suite.attribute("name").as_string(suite.name())) +
                " (outside of its test cases)");
    return {.failed = 1};
  }

  void note_failed(const std::string& name) {
    if (++failed_ == 1) status_.first_failed = name;
  }

  /// The sum of the counters of these names; -1: `suite` has none of them.
  int64_t declared(const pugi::xml_node& suite, std::initializer_list<const char*> names) {
    int64_t sum = -1;
    for (const char* name : names) {
      const pugi::xml_attribute attribute = suite.attribute(name);
      if (!attribute) continue;
      const std::string_view text = attribute.value();
      uint32_t number = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
      if (error != std::errc() || end != text.data() + text.size())
        note("has the counter " + std::string(name) + "='" + std::string(text) + "' at <" +
             suite.name() + ">; a counter is a whole number from 0 to 4294967295");
      sum = std::max<int64_t>(sum, 0) + number;
    }
    return sum;
  }

  void contradict(const pugi::xml_node& suite, int64_t number, const char* what, int64_t counted) {
    note("contradicts itself: <" + std::string(suite.name()) + "> declares " +
         std::to_string(number) + " " + what + ", its cases are " + std::to_string(counted));
  }

  /// A suite that declares other numbers than its cases show was cut off or merged, or failed
  /// outside of any case. `own`: without suites within it, which some writers do not count.
  void compare_counters(const pugi::xml_node& suite, const CaseTally& own, const CaseTally& all) {
    const auto agrees = [&](int64_t number, auto counted) {
      return number < 0 || number == counted(all) || (own.tests > 0 && number == counted(own)) ||
             (all.retries > 0 && number <= counted(all) + all.retries);
    };
    const auto tests = [](const CaseTally& tally) { return tally.tests; };
    const int64_t declared_tests = declared(suite, {"tests"});
    if (!agrees(declared_tests, tests)) contradict(suite, declared_tests, "tests", all.tests);
    const auto failed = [](const CaseTally& tally) { return tally.failed; };
    const int64_t declared_failed = declared(suite, {"failures", "errors"});
    if (!agrees(declared_failed, failed)) contradict(suite, declared_failed, "failed", all.failed);
    compare_not_run(suite, all, agrees);
  }

  /// Where a suite has only one of the two counters, some writers leave the other kind out of it
  /// and some put both kinds in it.
  template <class Agrees>
  void compare_not_run(const pugi::xml_node& suite, const CaseTally& all, Agrees agrees) {
    const int64_t skipped = declared(suite, {"skipped"}), disabled = declared(suite, {"disabled"}),
                  not_run = declared(suite, {"skipped", "disabled"});
    const auto both = [](const CaseTally& tally) { return tally.skipped + tally.disabled; };
    if (agrees(not_run, both)) return;
    if (disabled < 0 && agrees(skipped, [](const CaseTally& tally) { return tally.skipped; }))
      return;
    if (skipped < 0 && agrees(disabled, [](const CaseTally& tally) { return tally.disabled; }))
      return;
    contradict(suite, not_run, "skipped or disabled", both(all));
  }

  CiStatus& status_;
  int64_t failed_ = 0, not_started_ = 0;
  std::string problem_, first_not_started_;
};

bool is_suite(const pugi::xml_node& root) {
  return is_junit_name(root.name(), {"testsuites", "testsuite"});
}

/// Why the roots are not those of one JUnit file; empty: they are.
std::string problem_of_roots(const pugi::xml_document& document) {
  const pugi::xml_node first = document.document_element();
  const auto quoted = [](const pugi::xml_node& root) {
    const std::string name = root.attribute("name").value();
    return "<" + std::string(root.name()) + (name.empty() ? "" : " name=\"" + name + "\"") + ">";
  };
  if (!is_suite(first))
    return "is no JUnit file: its root is <" + std::string(first.name()) +
           ">, want <testsuites> or <testsuite>";
  for (pugi::xml_node next = first.next_sibling(); next; next = next.next_sibling())
    if (next.type() == pugi::node_element)
      return "holds a second root " + quoted(next) + " behind " + quoted(first) +
             "; give one report, or put their suites into one <testsuites>";
  return "";
}

std::string problem_of_counts(const CiStatus& status) {
  if (status.tests == 0)
    return "holds no test case; give the JUnit file of a run that executed its tests";
  if (status.tests == status.skipped)
    return "holds no test that ran: " + std::to_string(status.skipped) + " of " +
           std::to_string(status.tests) +
           " were skipped, disabled or not run; give the JUnit file of a run that executed its "
           "tests";
  return "";
}

}  // namespace

CiStatus read_junit(std::string_view text) {
  CiStatus status;
  pugi::xml_document document;
  const pugi::xml_parse_result parsed = document.load_buffer(text.data(), text.size());
  const std::string not_xml = parsed ? ""
                                     : std::string("is no XML: ") + parsed.description() +
                                           " at byte " + std::to_string(parsed.offset);
  CaseCounter counter(status);
  CaseTally total;
  for (const pugi::xml_node& root : document.children())  // up to the error where there is one
    if (is_suite(root)) total += counter.count(root);
  status.tests = total.tests;
  status.failed = total.failed;
  status.skipped = total.skipped + total.disabled;
  if (status.tests > status.skipped && counter.not_started() > 0) {
    if (status.failed == 0) status.first_failed = counter.first_not_started();
    status.failed += counter.not_started();
    status.skipped -= counter.not_started();
  }
  for (const std::string& problem :
       {not_xml, problem_of_roots(document), problem_of_counts(status), counter.problem()})
    if (status.problem.empty()) status.problem = problem;
  if (status.failed > 0) status.remark = std::exchange(status.problem, "");
  return status;
}

}  // namespace harness
