// Kernel names against the requested backend and the recorded one.
#include "suites/phases/profiles/path_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/testing/paths.h"
#include "harness/trace/testing.h"
#include "harness/trace/trace_file.h"
#include "suites/conformance/checks/check.h"
#include "suites/phases/testing.h"

namespace suites {
namespace {

namespace trace = harness::trace;
using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kTrainStep = "train.step";

/// A row of a record, three calls.
nsa::RanBackend row(const std::string& stage, const std::string& requested,
                    const std::string& backend, const std::string& detail = "") {
  return {stage, backend, 3, requested, detail, ""};
}

/// The one check on a step that launched these kernels in `range`.
json prove(const nsa::RanBackend& ran, const std::vector<std::string>& kernels,
           const std::string& range = "nsa.sel_attn") {
  RecordedCase recorded("hotspots");
  trace::TraceBuilder t;
  t.range(kTrainStep, 1, 0, 1'000'000).range(range, 1, 100, 200);
  int64_t launch = 0;
  for (const std::string& kernel : kernels) {
    ++launch;
    t.launch(1, 100 + 10 * launch, launch)
        .kernel(kernel, 7, 10'000 * launch, 10'000 * launch + 9'000, launch);
  }
  json table = json::array();
  prove_paths(recorded.one(), "arm", t.trace(), trace::attribute(t.trace(), kTrainStep),
              {ran, row("gate", "plain", "plain")}, table);
  EXPECT_EQ(recorded.lines("check").size(), 1u);
  EXPECT_EQ(table.size(), 1u);
  return recorded.lines("check").at(0);
}

TEST(PathRules, KernelNamesProveOrDisproveTheRequest) {
  const auto sel = [](const std::string& kernel, const std::string& requested,
                      const std::string& backend) {
    return prove(row("sel_attn", requested, backend), {kernel});
  };
  const json good = sel("row_attention_kernel<64>(int)", "fused", "fused");
  EXPECT_TRUE(good["ok"]);
  EXPECT_EQ(good["id"], "path/arm/sel_attn");
  EXPECT_EQ(good["detail"],
            "requested fused, ran fused; range nsa.sel_attn ran row_attention_kernel");

  const json replaced = sel("sm90_xmma_gemm", "fused", "gather");
  EXPECT_FALSE(replaced["ok"]);
  EXPECT_EQ(replaced["code"], code::kPathProof);
  EXPECT_THAT(replaced["detail"].get<std::string>(),
              HasSubstr("requested fused, ran gather; no kernel 'row_attention_kernel|selected_'"));

  // The record lies; the kernels do not.
  EXPECT_FALSE(sel("sm90_xmma_gemm", "fused", "fused")["ok"]);
  EXPECT_FALSE(sel("row_attention_kernel", "gather", "gather")["ok"]);
  EXPECT_FALSE(sel("pytorch_flash::flash_fwd_kernel", "masked", "masked")["ok"]);
  // The kernels are those of the requested backend, but the record names another one.
  EXPECT_FALSE(sel("row_attention_kernel", "fused", "gather")["ok"]);
  EXPECT_TRUE(sel("nvjet_tst_64x8", "gather", "gather")["ok"]);
}

const std::string kPortable = "void nsa::kernels::portable::", kSm80 = "void nsa::kernels::sm80::",
                  kSm90 = "void nsa::kernels::sm90::";

bool proven(const std::string& stage, const std::string& detail,
            const std::vector<std::string>& kernels, const std::string& range) {
  return prove(row(stage, "fused", "fused", detail), kernels, range)["ok"].get<bool>();
}

bool selected(const std::string& detail, const std::vector<std::string>& kernels) {
  return proven("sel_attn", detail, kernels, "nsa.sel_attn");
}

/// Many rows in whole tiles use the kernel of the interval branches; rows in the order of keys do
/// not.
TEST(PathRules, EveryOrderOfTheSelectedBranchHasItsKernels) {
  const std::string rows = kPortable + "row_attention_kernel<64>",
                    index = kPortable + "scatter_rows",
                    keys = kSm90 + "selected_forward_kernel<64>",
                    dense = kSm90 + "selected_dense_kernel<64>",
                    tiles = kSm90 + "interval_attention_kernel<64>";
  EXPECT_TRUE(selected("by rows", {rows}));
  EXPECT_FALSE(selected("by rows", {index, keys}));
  EXPECT_FALSE(selected("by rows", {rows, tiles}));
  EXPECT_TRUE(selected("whole tiles", {tiles}));
  EXPECT_TRUE(selected("whole tiles", {dense}));
  EXPECT_FALSE(selected("whole tiles", {keys}));
  EXPECT_FALSE(selected("whole tiles", {kSm80 + "interval_attention_kernel<64>"}));
  const std::string order_of_keys = "order of keys";
  EXPECT_TRUE(selected(order_of_keys, {index, keys, dense}));
  EXPECT_FALSE(selected(order_of_keys, {index, tiles}));
  EXPECT_FALSE(selected(order_of_keys, {keys, rows}));
  const std::string both = "whole tiles below 2048, then " + order_of_keys;
  EXPECT_TRUE(selected(both, {tiles, index, keys}));
  EXPECT_FALSE(selected(both, {tiles}));
  EXPECT_FALSE(selected(both, {index, keys}));
  for (const std::string& order : {std::string("by rows"), order_of_keys, both}) {
    const std::string padded = order + ", padded to 128/128";
    EXPECT_EQ(selected(padded, {rows}), selected(order, {rows}));
    EXPECT_EQ(selected(padded, {index, keys}), selected(order, {index, keys}));
    EXPECT_EQ(selected(padded, {tiles, index, keys}), selected(order, {tiles, index, keys}));
  }
}

/// Both codes launch kernels of the same names, and helpers of `portable` in common.
TEST(PathRules, TheCodeOfTheRecordIsTheOneThatRan) {
  const std::string rows = kPortable + "prepare_rows_kernel<64>";
  const auto expect_code = [&](const std::string& stage, const std::string& range,
                               const std::string& kernel) {
    for (const std::string recorded : {"", "padded to 128/128", "sm_80", "sm_80, padded to 64/64"})
      for (const std::string& ran : {kSm90, kSm80})
        EXPECT_EQ(proven(stage, recorded, {rows, ran + kernel + "<64>"}, range),
                  recorded.starts_with("sm_80") == (ran == kSm80))
            << stage << " recorded '" << recorded << "', ran " << ran;
    EXPECT_FALSE(proven(stage, "sm_80", {kSm80 + kernel + "<64>", kSm90 + kernel + "<64>"}, range));
    EXPECT_FALSE(proven(stage, "", {kSm80 + kernel + "<64>", kSm90 + kernel + "<64>"}, range));
    EXPECT_FALSE(proven(stage, "", {rows}, range)) << "helpers alone";
    EXPECT_FALSE(proven(stage, "sm_80", {rows}, range)) << "helpers alone";
  };
  expect_code("win_attn", "nsa.win_attn", "interval_attention_kernel");
  expect_code("cmp_attn", "nsa.cmp_attn+select", "interval_attention_kernel");
  expect_code("win_attn.backward", "nsa.win_attn.backward", "interval_backward_kernel");
  expect_code("cmp_attn.backward", "nsa.cmp_attn.backward", "interval_backward_kernel");
  expect_code("sel_attn.backward", "nsa.sel_attn.backward", "selected_backward_kernel");
  EXPECT_TRUE(proven("sel_attn.backward", "", {rows, kSm90 + "interval_backward_kernel<64>"},
                     "nsa.sel_attn.backward"))
      << "whole tiles alone";
}

/// The kernel names of library operators do not identify their backward passes.
TEST(PathRules, BackwardPassesAreProvenOfOwnKernelsOnly) {
  EXPECT_FALSE(path_rule("win_attn.backward", "flash").has_value());
  EXPECT_FALSE(path_rule("sel_attn.backward", "gather").has_value());
  EXPECT_TRUE(path_rule("sel_attn.backward", "fused").has_value());
  EXPECT_FALSE(prove(row("sel_attn.backward", "fused", "gather"),
                     {kSm90 + "selected_backward_kernel<64>"}, "nsa.sel_attn.backward")["ok"])
      << "the record names another backend";
}

/// Recorded on an H200: fused was asked for and recorded as run, gather's kernels ran.
TEST(PathRules, RecordedTraceDisprovesAFalseRecord) {
  RecordedCase recorded("hotspots");
  const trace::Trace h200_trace = trace::read_trace_file(
      std::filesystem::path(base::source_dir()) /
      "suites/phases/profiles/testdata/h200_replaced_backend.trace.jsonl.gz");
  json table = json::array();
  prove_paths(recorded.one(), "", h200_trace, trace::attribute(h200_trace, "audit.call"),
              {{"cmp_attn", "fused", 1, "fused", "", ""},
               {"sel_attn", "fused", 1, "fused", "", ""},
               {"win_attn", "fused", 1, "fused", "sm_80", ""}},
              table);
  const std::vector<json> checks = recorded.lines("check");
  ASSERT_EQ(checks.size(), 3u);
  EXPECT_TRUE(checks[0]["ok"]) << checks[0];
  EXPECT_FALSE(checks[1]["ok"]);
  EXPECT_EQ(checks[1]["code"], code::kPathProof);
  EXPECT_THAT(checks[1]["detail"].get<std::string>(),
              HasSubstr("no kernel 'row_attention_kernel|selected_'"));
  EXPECT_THAT(checks[1]["detail"].get<std::string>(), HasSubstr("vectorized_gather_kernel"));
  EXPECT_FALSE(checks[2]["ok"]) << "the code of sm_90 ran";
  EXPECT_THAT(checks[2]["detail"].get<std::string>(),
              HasSubstr("no kernel 'sm80::interval_attention_kernel'"));
}

}  // namespace
}  // namespace suites
