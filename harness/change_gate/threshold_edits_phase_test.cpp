// The phase on a checkout with a change in its working tree; the comparison of two texts is
// threshold_edits_test's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "harness/evidence/storage/temp_dir.h"
#include "harness/phases/builtin_phases.h"
#include "harness/phases/fake_checkout.h"
#include "harness/phases/run_alone.h"
#include "harness/training_analysis/training_run.h"

namespace harness {
namespace {

using testing::HasSubstr;

constexpr const char* kSmallBook =
    R"({"phases": [{"id": "ab", "criteria": [{"id": "C-a", "value": 5}]}]})";
constexpr const char* kLoosened =
    R"({"phases": [{"id": "ab", "criteria": [{"id": "C-a", "value": 50}]}]})";

/// A checkout with one commit and a working tree that edits a tolerance and a threshold.
class EditedCheckout : public testing::Test {
 protected:
  EditedCheckout() {
    put("suites/compare/tolerance.cpp", "eps = 1;\n");
    put("configs/runbooks/b.json", kSmallBook);
    put("nsa/x.cpp", "1\n");
    commit_first(dir_.path());
  }
  void put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((dir_ / path).parent_path());
    std::ofstream(dir_ / path) << text;
  }
  base::protocol::Transcript run(const nlohmann::json& args) const {
    const TempDir raw;
    return run_alone(raw / "raw.jsonl", args, [&](const BuiltinCall& call, auto& emitter) {
      run_threshold_edits(dir_.path(), call, emitter);
    });
  }
  static size_t failed(const base::protocol::Transcript& transcript) {
    size_t count = 0;
    for (const auto& line : transcript.lines)
      if (const auto* check = std::get_if<base::protocol::Check>(&line.message))
        count += !check->ok && check->code == "THRESHOLD_EDIT";
    return count;
  }
  const nlohmann::json args_ = {{"base", "HEAD"},
                                {"watched", {"suites/compare/tolerance*", "configs/runbooks/*"}}};
  TempDir dir_;
};

TEST_F(EditedCheckout, EditsFailWithoutAReasonAndAreShownEitherWay) {
  put("suites/compare/tolerance.cpp", "eps = 100;\n");
  put("configs/runbooks/b.json", kLoosened);
  put("configs/runbooks/new.json", kSmallBook);
  put("nsa/x.cpp", "2\n");
  auto transcript = run(args_);
  EXPECT_EQ(failed(transcript), 2u);
  EXPECT_EQ(metric_of(transcript, "edits.found_count"), 2);
  EXPECT_EQ(metric_of(transcript, "edits.unexplained_count"), 2);
  auto explained = args_;
  explained["reason"] = "fp8";
  transcript = run(explained);
  EXPECT_EQ(failed(transcript), 0u);
  EXPECT_EQ(metric_of(transcript, "edits.unexplained_count"), 0);
  EXPECT_EQ(rows_of(transcript, "edits"),
            (nlohmann::json{
                {"configs/runbooks/b.json", "phase \"ab\": criterion \"C-a\": value", "5", "50"},
                {"suites/compare/tolerance.cpp", "line", "eps = 1;", "eps = 100;"}}));
  const auto* check =
      find_line<base::protocol::Check>(transcript, [](const auto&) { return true; });
  ASSERT_NE(check, nullptr);
  EXPECT_EQ(check->id, "edit/configs/runbooks/b.json");
  EXPECT_THAT(check->detail, HasSubstr("was 5, is 50; reason: fp8"));
}

TEST_F(EditedCheckout, AGoldenTextAndAFileThatIsGoneDecide) {
  put("suites/compare/tolerance_golden.md", "new\n");
  EXPECT_EQ(failed(run(args_)), 1u);
  std::filesystem::remove(dir_ / "configs/runbooks/b.json");
  EXPECT_EQ(failed(run(args_)), 2u);
}

// What the change itself brings must not take an edit off the list, or hide its lines.
TEST_F(EditedCheckout, NeitherListsNorAttributesOfTheChangeHideAnEdit) {
  const auto commit = [&] {
    git_in(dir_.path(), {"add", "."});
    git_in(dir_.path(), {"commit", "-q", "-m", "list"});
  };
  put("configs/kinds/threshold_edits.json",
      R"({"args": [{"name": "watched", "default": ["suites/*"]}]})");
  commit();
  put("configs/kinds/threshold_edits.json", R"({"args": []})");
  put(".gitattributes", "* -diff\n");
  put("suites/compare/tolerance.cpp", "eps = 100;\n");
  const auto transcript = run({{"base", "HEAD"}, {"watched", nlohmann::json::array()}});
  EXPECT_EQ(failed(transcript), 1u);
  EXPECT_EQ(rows_of(transcript, "edits"),
            (nlohmann::json{{"suites/compare/tolerance.cpp", "line", "eps = 1;", "eps = 100;"}}));
}

TEST_F(EditedCheckout, ATestThatIsGoneIsAnEdit) {
  put("nsa/x_test.cpp", "TEST(X, A) {}\n");
  EXPECT_EQ(failed(run(args_)), 0u) << "a new test takes nothing away";
  put("nsa/CMakeLists.txt", "nsa_add_test(NAME y_test SOURCES y_test.cpp LABELS gpu)\n");
  EXPECT_EQ(failed(run(args_)), 1u) << "what needs a GPU does not run everywhere";
}

TEST_F(EditedCheckout, NothingEditedIsNoCheckAndACountOfZero) {
  put("nsa/x.cpp", "2\n");
  put("suites/compare/tolerances/README.md", "words decide nothing\n");
  const auto transcript = run(args_);
  EXPECT_EQ(find_line<base::protocol::Check>(transcript, [](const auto&) { return true; }),
            nullptr);
  EXPECT_EQ(metric_of(transcript, "edits.found_count"), 0);
  EXPECT_EQ(end_of(transcript), "ok");
}

TEST_F(EditedCheckout, WithoutABaseOrACheckoutNothingPasses) {
  EXPECT_THAT(end_of(run({})), HasSubstr("failed: args.base must be given"));
  EXPECT_THAT(end_of(run({{"base", "nowhere"}})), HasSubstr("no common commit of 'nowhere'"));
  const TempDir raw;
  const auto nowhere = run_alone(raw / "raw.jsonl", args_, [](const auto& call, auto& emitter) {
    run_threshold_edits(std::nullopt, call, emitter);
  });
  EXPECT_EQ(end_of(nowhere), "failed: no checkout");
}

}  // namespace
}  // namespace harness
