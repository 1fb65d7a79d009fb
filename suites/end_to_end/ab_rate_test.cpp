// ab-rate counts the results of the A/B procedure with the real worker; the counts decide nothing.
#include <gmock/gmock.h>

#include <algorithm>

#include "suites/end_to_end/command.h"

namespace suites::end_to_end {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

std::vector<std::string> count(const fs::path& file, int runs) {
  return {
      "ab-rate",     "--runbook", "ab_rate_cpu",        "--set", "ab.slowdown_pct=50", "--set",
      "ab.rounds=5", "--runs",    std::to_string(runs), "--out", file.string(),        "--json"};
}

json printed(const Outcome& done) { return json::parse(done.output.substr(done.output.find('{'))); }

int64_t sum_of(const json& counts) {
  int64_t sum = 0;
  for (const json& each : counts) sum += each["runs"].get<int64_t>();
  return sum;
}

TEST(AbRate, CountsRunsAndGoesOnWhereItWasCutOff) {
  const fs::path file = fresh_dir("ab_rate.jsonl");
  const Outcome first = validate(count(file, 2));
  ASSERT_EQ(first.exit_code, 0) << first.output;
  const Outcome second = validate(count(file, 3));
  ASSERT_EQ(second.exit_code, 0) << second.output;
  const json all = printed(second);
  EXPECT_EQ(all["runs"], 3);
  EXPECT_EQ(sum_of(all["figure"]), 3);
  EXPECT_EQ(sum_of(all["criterion"]), 3);
  EXPECT_EQ(all["args"]["slowdown_pct"], 50);
  const std::string text = read_file(file);
  EXPECT_EQ(std::ranges::count(text, '\n'), 4) << text;  // a header and three runs
  EXPECT_THAT(text, HasSubstr("\"processes\":[{"));
}

TEST(AbRate, RefusesUnsupportedRunbooksAndArguments) {
  const fs::path file = fresh_dir("ab_rate_refused.jsonl");
  const Outcome book = validate({"ab-rate", "--runbook", "smoke_cpu", "--out", file.string()});
  EXPECT_EQ(book.exit_code, 2);
  EXPECT_THAT(book.output, HasSubstr("runbook 'smoke_cpu' must have one phase, of nsa-worker"));
  const Outcome work = validate(
      {"ab-rate", "--runbook", "ab_rate_cpu", "--set", "ab.work=walk", "--out", file.string()});
  EXPECT_EQ(work.exit_code, 3);
  EXPECT_THAT(work.output, HasSubstr("args.work must be ranges or add, got 'walk'"));
}

}  // namespace
}  // namespace suites::end_to_end
