#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/fault_injection/faults/faults.h"
#include "harness/phases/builtin_phases.h"
#include "harness/phases/fake_checkout.h"
#include "harness/phases/run_alone.h"
#include "harness/schema/error.h"

namespace harness {
namespace {

using testing::HasSubstr;

base::protocol::Transcript run(const nlohmann::json& args,
                               const std::optional<std::filesystem::path>& checkout) {
  const TempDir dir;
  return run_alone(dir / "raw.jsonl", args, [&](const BuiltinCall& call, auto& emitter) {
    run_diff_scope(checkout, call, emitter);
  });
}

std::string failure(const base::protocol::Transcript& transcript) {
  return transcript.ended.contains("all") ? transcript.ended.at("all").reason : "no case line";
}

// What it reports of files: the injected fault P27 and its control.
TEST(DiffScope, NamesWhatIsOutsideAndWhatIsGuarded) {
  const Injected injected = injection::inject_mixed_diff({}),
                 control = injection::control_plain_diff({});
  EXPECT_TRUE(injected.as_wanted) << injected.seen;
  EXPECT_TRUE(control.as_wanted) << control.seen;
}

TEST(DiffScope, WithoutBaseScopeOrCheckoutNothingPasses) {
  EXPECT_THAT(failure(run({{"paths", {"*"}}}, std::nullopt)), HasSubstr("args.base"));
  EXPECT_THAT(failure(run({{"base", "main"}}, std::nullopt)), HasSubstr("args.paths"));
  const nlohmann::json args = {{"base", "main"}, {"paths", {"*"}}};
  EXPECT_EQ(failure(run(args, std::nullopt)), "no checkout");
  const TempDir empty;
  EXPECT_THAT(failure(run(args, empty.path())), HasSubstr("no common commit of 'main'"));
  EXPECT_THAT(failure(run({{"base", "--output=x"}, {"paths", {"*"}}}, empty.path())),
              HasSubstr("must not begin with '-'"));
}

TEST(DiffScope, NothingChangedIsCounted) {
  const TempDir repo;
  write_bytes(repo / "a.txt", "1\n");
  commit_first(repo.path());
  const auto transcript = run({{"base", "main"}, {"paths", {"*"}}}, repo.path());
  const auto* changed = find_line<base::protocol::Metric>(
      transcript, [](const auto& metric) { return metric.name == "files.changed_count"; });
  ASSERT_NE(changed, nullptr);
  EXPECT_EQ(changed->value, 0);
}

TEST(DiffScope, AListOfOtherThingsIsRefused) {
  EXPECT_THROW(run({{"base", "main"}, {"paths", {1}}}, std::nullopt), ConfigError);
}

}  // namespace
}  // namespace harness
