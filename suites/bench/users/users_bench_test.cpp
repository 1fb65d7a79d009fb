#include "suites/bench/users/users_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

namespace suites {
namespace {

using nlohmann::json;

CaseConfig small_user_config() {
  CaseConfig c;
  c.tokens = 160;
  c.num_heads = 4, c.num_kv_heads = 1;
  c.qk_head_dim = c.v_head_dim = 24;
  c.block_size = c.block_stride = c.sel_block_size = 16;
  c.window = 40;
  c.gate = GateKind::kSigmoid;
  c.rope = RopeKind::kNone;
  return c;
}

TargetBenchOptions short_options() {
  TargetBenchOptions options;
  options.seconds = 0.01;
  options.judged_rows = 12;
  return options;
}

void expect_times(const json& arm) {
  for (const char* pass : {"forward", "backward"})
    EXPECT_GT(arm.at(pass).at("hot").at("median_ms"), 0) << pass;
}

TEST(UsersBench, ACallWithoutACudaKernelIsTimedAsWhatRuns) {
  const json report = run_users_bench(at::kCPU, {{"small", small_user_config()}}, short_options());
  const json& row = report.at("cases").at(0);
  EXPECT_TRUE(row.at("problems").empty()) << row.dump(1);
  EXPECT_GT(row.at("checks_run"), 8);
  EXPECT_EQ(row.at("backend"), "cpu");
  EXPECT_NE(row.at("reason"), "");
  EXPECT_EQ(row.at("ran").at("sel_attn"), "cpu");
  expect_times(row);
}

TEST(UsersBench, DocumentsAreTimedPackedPaddedAndAsOne) {
  const json report = run_users_bench(at::kCPU, {{"documents", small_user_config(), {40, 97, 23}}},
                                      short_options());
  const json& row = report.at("cases").at(0);
  EXPECT_TRUE(row.at("problems").empty()) << row.dump(1);
  expect_times(row);
  for (const char* other : {"padded", "one_document", "even", "with_max_seqlen"}) {
    expect_times(row.at(other));
    EXPECT_GT(row.at(other).at("ratio"), 0) << other;
  }
  EXPECT_EQ(row.at("documents"), json({40, 97, 23}));
}

TEST(UsersBench, DocumentsOfAnotherLengthThanTheCaseAreAProblem) {
  const json report =
      run_users_bench(at::kCPU, {{"documents", small_user_config(), {40, 97}}}, short_options());
  const json& row = report.at("cases").at(0);
  EXPECT_THAT(row.at("problems").dump(), testing::HasSubstr("must have the case's tokens"));
  EXPECT_FALSE(row.contains("forward"));
}

TEST(UsersBench, CasesAreDistinctAndDocumentsFillThem) {
  std::set<std::string> ids;
  for (const UserCase& one : user_cases()) {
    EXPECT_TRUE(ids.insert(one.id).second) << one.id;
    if (one.documents.empty()) continue;
    EXPECT_EQ(std::accumulate(one.documents.begin(), one.documents.end(), int64_t{0}),
              one.config.tokens);
  }
  EXPECT_EQ(ids, (std::set<std::string>{"blocks128_8k", "dim256_8k", "dim96_8k", "documents_8k",
                                        "g2_8k", "g32_8k", "g8_8k", "nsa1b_8k"}));
}

}  // namespace
}  // namespace suites
