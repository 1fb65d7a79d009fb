#include "harness/phases/builtin_phases.h"

#include <gtest/gtest.h>

#include "harness/evidence/storage/temp_dir.h"
#include "harness/phases/fake_program.h"

namespace harness {
namespace {

TEST(Builtins, NamesAreThoseThatRunbooksMayUse) {
  std::vector<std::string> names;
  for (const auto& [name, function] : builtin_phases()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{
                       "binaries_ab", "checkout", "ci_status", "configuration", "counterfactual",
                       "dense_counterpart", "diff_scope", "environment", "forecast", "gap_analysis",
                       "loss_gap", "rate_gate", "scaling", "selftest", "threshold_edits"}));
}

TEST(Builtins, TheGivenFolderIsWhereProgramsAreLookedFor) {
  const TempDir dir;
  write_fake_worker(dir / "bin");
  const auto phases = builtin_phases(dir / "bin");
  const auto transcript =
      run_alone(dir / "raw.jsonl", nlohmann::json::object(), phases.at("environment"));
  const auto* unknown = find_line<base::protocol::Metric>(
      transcript,
      [](const base::protocol::Metric& m) { return m.name == "switches.unknown_count"; });
  ASSERT_NE(unknown, nullptr);
  EXPECT_TRUE(unknown->value.is_number()) << unknown->reason;
}

}  // namespace
}  // namespace harness
