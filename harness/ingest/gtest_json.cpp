#include <nlohmann/json.hpp>

#include "harness/ingest/compare_names.h"
#include "harness/ingest/gtest_checks.h"

namespace harness {
namespace {

using base::protocol::Check;
using nlohmann::json;

/// "Suite.Test" of every test in the report.
std::string test_name(const json& suite, const json& test) {
  return suite.at("name").get<std::string>() + "." + test.at("name").get<std::string>();
}

std::string failure_text(const json& test) {
  std::string text;
  for (const auto& failure : test.value("failures", json::array()))
    text += (text.empty() ? "" : "\n") + failure.at("failure").get<std::string>();
  return text;
}

Check check_of(const json& suite, const json& test) {
  Check check{.id = test_name(suite, test)};
  const auto result = test.at("result").get<std::string>();
  if (test.at("status") != "RUN") {
    check.code = "TEST_DISABLED";
    check.detail = "disabled: it did not run";
  } else if (result != "COMPLETED") {
    check.code = "TEST_SKIPPED";
    check.detail = "result " + result + ": a skipped test has not passed";
  } else if (test.contains("failures")) {
    // A test may name what it shows with RecordProperty("code", ...).
    check.code = test.value("code", "TEST_FAILED");
    check.detail = failure_text(test);
  } else {
    check.ok = true;
  }
  return check;
}

}  // namespace

std::vector<Check> read_gtest_checks(const json& report) {
  std::vector<Check> checks;
  for (const auto& suite : report.at("testsuites"))
    for (const auto& test : suite.at("testsuite")) checks.push_back(check_of(suite, test));
  return checks;
}

namespace {

std::string summary(const std::vector<Check>& checks) {
  size_t failed = 0;
  std::string first;
  for (const auto& check : checks) {
    if (check.ok) continue;
    failed++;
    if (first.empty()) first = check.id;
  }
  if (failed == 0) return "";
  return std::to_string(failed) + " of " + std::to_string(checks.size()) +
         " tests did not pass, first: " + first;
}

}  // namespace

std::vector<std::string> parse_gtest_list(std::string_view listing) {
  std::vector<std::string> names;
  std::string suite;
  for (size_t from = 0; from < listing.size();) {
    const auto end = std::min(listing.find('\n', from), listing.size());
    std::string line(listing.substr(from, end - from));
    from = end + 1;
    line = line.substr(0, line.find("  # "));  // type and value parameters
    while (!line.empty() && line.back() == ' ') line.pop_back();
    if (line.starts_with("  ") && !suite.empty())
      names.push_back(suite + line.substr(2));
    else if (line.ends_with('.'))
      suite = line;
  }
  return names;
}

IngestVerdict ingest_gtest(std::string_view text, const std::vector<std::string>& planned,
                           const IngestTarget& target, base::protocol::Emitter& emitter) {
  std::vector<Check> checks;
  try {
    checks = read_gtest_checks(json::parse(text));
  } catch (const json::exception& e) {
    return {"BAD_TEST_JSON", std::string("the GoogleTest report cannot be read: ") + e.what()};
  }
  std::vector<std::string> run;
  for (const auto& check : checks) run.push_back(check.id);
  auto verdict = compare_names(planned, run, "tests");
  if (!verdict.cause.empty()) return verdict;
  emitter.hello(target.hello);
  for (auto& check : checks) {
    check.case_id = target.cases.empty() ? "" : target.cases.front();
    emitter.check(check);
  }
  end_cases(target, summary(checks), emitter);
  return {};
}

}  // namespace harness
