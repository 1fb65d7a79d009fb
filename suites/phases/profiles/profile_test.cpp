#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include <fstream>
#include <set>

#include "base/testing/paths.h"
#include "harness/trace/testing.h"
#include "harness/trace/trace_file.h"
#include "suites/conformance/checks/check.h"
#include "suites/phases/phase.h"
#include "suites/phases/profiles/path_rules.h"
#include "suites/phases/profiles/profile_lines.h"
#include "suites/phases/profiles/profile_session.h"
#include "suites/phases/profiles/profiled_step.h"
#include "suites/phases/profiles/step_work.h"
#include "suites/phases/profiles/trace_faults.h"
#include "suites/phases/testing.h"

namespace suites {
namespace {

namespace trace = harness::trace;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kStepRange = "train.step";

/// A step with one launch in each of two ranges.
trace::TraceBuilder small_trace(const std::string& sel_kernel) {
  trace::TraceBuilder t;
  t.range(kStepRange, 1, 0, 1'000'000);
  t.range("nsa.sel_attn", 1, 100, 200).range("nsa.win_attn", 1, 300, 400);
  t.launch(1, 110, 1).launch(1, 310, 2);
  t.kernel(sel_kernel, 7, 200'000, 500'000, 1);
  t.kernel("nvjet_gemm", 7, 500'000, 600'000, 2);
  return t;
}

std::set<std::string> declared(const std::string& kind, const std::string& estimator) {
  std::ifstream in(base::source_dir() + "/configs/kinds/" + kind + ".json");
  const json kind_file = json::parse(in);
  std::set<std::string> names;
  for (const json& metric : kind_file["metrics"]) {
    if (metric["estimator"] != estimator) continue;
    const std::string name = metric["name"];
    const size_t open = name.find('{'), close = name.find('}');
    if (open == std::string::npos)
      names.insert(name);
    else
      for (const json& word : kind_file["lists"][name.substr(open + 1, close - open - 1)])
        names.insert(name.substr(0, open) + word.get<std::string>() + name.substr(close + 1));
  }
  return names;
}

TEST(ProfileLines, ReportFiguresThatTheKindDeclares) {
  RecordedCase recorded("hotspots");
  trace::TraceBuilder t = small_trace("row_attention_kernel<64>");
  const trace::Profile profile = trace::profile(t.trace(), kStepRange);
  nsa::ModelConfig model;
  const Roof roof{.work = step_work(model, {.seq_len = 64}),
                  .ceilings = {.tflop_s = 100, .gb_s = 1000}};
  emit_profile(recorded.one(), profile, 2, roof);
  emit_roofline(recorded.one(), profile, roof);
  const std::set<std::string> known = declared("hotspots", "value");
  for (const json& line : recorded.lines("metric"))
    EXPECT_TRUE(known.contains(line["name"])) << line["name"];
  EXPECT_EQ(recorded.metric("share.nsa_sel_attn_pct")["value"], 75);
  EXPECT_EQ(recorded.metric("share.nsa_win_attn_pct")["value"], 25);
  EXPECT_TRUE(recorded.metric("share.nsa_gate_pct")["value"].is_null());
  EXPECT_EQ(recorded.metric("share.nsa_gate_pct")["reason"], "the range was not entered");
  EXPECT_EQ(recorded.metric("device.busy_pct")["value"], 40);
  EXPECT_EQ(recorded.metric("step.launches_per_step_count")["value"], 2);
  EXPECT_EQ(recorded.metric("comm.busy_ms")["reason"], "no communication kernels");
  EXPECT_GT(recorded.metric("roofline.nsa_sel_attn_pct")["value"].get<double>(), 0);
  EXPECT_TRUE(recorded.metric("roofline.model_mlp_pct")["value"].is_null());
  const json launches = recorded.lines("check").at(0), check = recorded.lines("check").at(1);
  EXPECT_TRUE(launches["ok"]);
  std::vector<std::string> tables;
  for (const json& table : recorded.lines("table")) tables.push_back(table["id"]);
  EXPECT_THAT(tables, ElementsAre("ranges", "kernels", "copies", "idle", "roofline"));
  // Idle 200 us in front of the first kernel and 400 us behind the last one.
  EXPECT_EQ(recorded.lines("table").at(3)["rows"].at(1).at(1), 0.6);
  EXPECT_EQ(recorded.lines("table").at(3)["rows"].at(1).at(2), 60);
  EXPECT_EQ(
      launches["detail"],
      "2 launches, 2 kernels; 0 launches without work, 0 works without a call, 0 launches with "
      "several kernels");
  EXPECT_TRUE(check["ok"]);
  EXPECT_EQ(check["id"], "shares/sum");
}

/// A range that was not entered has the share 0 only where the record names the kernel that did its
/// work.
TEST(ProfileLines, RangesThatTheSelectionKernelLeavesHaveNoShareOfTheirOwn) {
  trace::TraceBuilder t = small_trace("row_attention_kernel<64>");
  const trace::Profile profile = trace::profile(t.trace(), kStepRange);
  const auto share = [&](const std::vector<nsa::RanBackend>& ran) {
    RecordedCase recorded("hotspots");
    emit_profile(recorded.one(), profile, 2, {}, ran);
    return recorded.metric("share.nsa_ranges_pct")["value"];
  };
  EXPECT_EQ(share({{"ranges", "fused", 12, "fused", "", ""}}), 0);
  EXPECT_TRUE(share({}).is_null());
  EXPECT_TRUE(share({{"ranges", "fused", 0, "fused", "", ""}}).is_null());
  EXPECT_TRUE(share({{"select", "fused", 12, "fused", "", ""}}).is_null());
  EXPECT_TRUE(share({{"ranges", "v2", 12, "v2", "", ""}}).is_null());
  EXPECT_TRUE(share({{"ranges", "fused", 11, "fused", "", ""}, {"ranges", "v1", 1, "v2", "", ""}})
                  .is_null());
}

TEST(ProfileLines, SharesThatDoNotSumFail) {
  RecordedCase recorded("hotspots");
  trace::TraceBuilder t = small_trace("row_attention_kernel<64>");
  t.kernel("stray", 9, 700'000, 800'000, 55);
  emit_profile(recorded.one(), trace::profile(t.trace(), kStepRange), 2);
  const json launches = recorded.lines("check").at(0), check = recorded.lines("check").at(1);
  EXPECT_EQ(launches["code"], "PROFILE_INCOMPLETE");
  EXPECT_FALSE(check["ok"]);
  EXPECT_EQ(check["code"], "SHARES_DO_NOT_SUM");
}

TEST(ProfileLines, ReportsRooflineAndFindsExceededCeilings) {
  RecordedCase recorded("hotspots");
  trace::TraceBuilder t = small_trace("row_attention_kernel<64>");
  const trace::Profile profile = trace::profile(t.trace(), kStepRange);
  // 300 us in nsa.sel_attn: 15 MFLOP at 0.1 TFLOP/s take 150 us, 50 %. 100 us in nsa.win_attn:
  // 200 KB at 1 GB/s take 200 us, twice what is possible.
  const Roof roof{.work = {{"nsa.sel_attn", {.flops = 15e6, .bytes = 0}},
                           {"nsa.win_attn", {.flops = 0, .bytes = 200e3}}},
                  .ceilings = {.tflop_s = 0.1, .gb_s = 1}};
  emit_profile(recorded.one(), profile, 2, roof);
  emit_roofline(recorded.one(), profile, roof);
  const json ranges = recorded.lines("table").at(0), kernels = recorded.lines("table").at(1);
  EXPECT_EQ(ranges["columns"].back(), "of roof, %");
  EXPECT_EQ(ranges["rows"][0].back(), 50) << ranges["rows"][0];
  EXPECT_EQ(ranges["rows"][1].back(), 200);
  EXPECT_TRUE(ranges["rows"].back().back().is_null()) << "no range, no formula";
  EXPECT_EQ(kernels["rows"][0].back(), 50) << "the only kernel of its range did its work";
  ASSERT_EQ(recorded.lines("finding").size(), 1u);
  EXPECT_EQ(recorded.lines("finding")[0]["code"], "ROOFLINE_EXCEEDED");
  EXPECT_THAT(recorded.lines("finding")[0]["symptom"].get<std::string>(),
              HasSubstr("nsa.win_attn"));
}

TEST(ProfileLines, TheCacheMaySaveItsBytesTwice) {
  for (const auto& [cache, findings] : {std::pair{24e3, 2u}, {26e3, 1u}}) {
    RecordedCase recorded("hotspots");
    trace::TraceBuilder t = small_trace("row_attention_kernel<64>");
    const trace::Profile profile = trace::profile(t.trace(), kStepRange);
    // Both ranges take half of what memory or products allow; no cache saves products.
    double entries = 0;  // a step
    for (const trace::RangeRow& row : profile.ranges)
      if (row.name == "nsa.win_attn") entries = static_cast<double>(row.count) / profile.steps;
    const Roof roof{.work = {{"nsa.sel_attn", {.flops = 60e6, .bytes = 0}},
                             {"nsa.win_attn", {.flops = 0, .bytes = 100e3 * entries}}},
                    .ceilings = {.tflop_s = 0.1, .gb_s = 0.5 * entries, .cache_bytes = cache}};
    emit_roofline(recorded.one(), profile, roof);
    EXPECT_EQ(recorded.lines("finding").size(), findings) << cache;
  }
}

TEST(ProfileLines, AKernelThatSharesItsRangeHasNoRoof) {
  RecordedCase recorded("hotspots");
  trace::TraceBuilder t = small_trace("row_attention_kernel<64>");
  t.launch(1, 120, 3).kernel("cast", 7, 700'000, 800'000, 3);
  const Roof roof{.work = {{"nsa.sel_attn", {.flops = 15e6, .bytes = 0}}},
                  .ceilings = {.tflop_s = 0.1, .gb_s = 1}};
  emit_profile(recorded.one(), trace::profile(t.trace(), kStepRange), 2, roof);
  for (const json& row : recorded.lines("table").at(1)["rows"])
    EXPECT_TRUE(row.back().is_null()) << row;
}

TEST(ProfileLines, WorkThatIsCountedTwiceIsFound) {
  RecordedCase recorded("hotspots");
  trace::TraceBuilder t = small_trace("row_attention_kernel<64>");
  count_twice(t.trace(), kStepRange, "nsa.sel_attn", "nsa.win_attn");
  emit_profile(recorded.one(), trace::profile(t.trace(), kStepRange), 2);
  const json launches = recorded.lines("check").at(0), check = recorded.lines("check").at(1);
  EXPECT_FALSE(launches["ok"]) << "a launch with two kernels";
  EXPECT_THAT(launches["detail"].get<std::string>(), HasSubstr("1 launches with several kernels"));
  EXPECT_FALSE(check["ok"]);
  EXPECT_EQ(check["code"], "SHARES_DO_NOT_SUM");
  EXPECT_THAT(check["detail"].get<std::string>(), HasSubstr("add up to 175"));
  EXPECT_THROW(count_twice(t.trace(), kStepRange, "nsa.sel_attn", "nsa.gate"), ConfigError);
}

TEST(StepWork, CountsKeysOfTheDefinition) {
  nsa::NsaConfig c = nsa::m7c_125m();
  c.block_size = 4;
  c.block_stride = 2;
  c.sel_block_size = 4;
  c.top_n = 2;
  c.window = 3;
  // t:          0 1 2 3 4 5 6 7
  // compressed  0 0 0 1 1 2 2 3   = 9
  // selected    1 2 3 4 5 6 7 8   = 36 (two blocks hold all of them)
  // window      1 2 3 3 3 3 3 3   = 21
  const KeyCounts counts = count_keys(c, 8);
  EXPECT_EQ(counts.compressed, 9);
  EXPECT_EQ(counts.selected, 36);
  EXPECT_EQ(counts.window, 21);
  // t = 8: block 2, the current one and one before: 4 + 1 keys.
  EXPECT_EQ(count_keys(c, 9).selected, 41);

  nsa::ModelConfig model;
  model.attention = c;
  model.num_layers = 1;
  const auto one = step_work(model, {.batch = 1, .accum = 1, .seq_len = 8});
  EXPECT_EQ(one.at("nsa.win_attn").flops, 2 * 12 * 21 * (64 + 64));
  EXPECT_EQ(one.at("nsa.win_attn").bytes, 2.0 * 128 * (12 * 8 + 2 * 8));
  EXPECT_EQ(one.at("model.head").flops, 2.0 * 8 * 768 * 256);
  // Five products: q.k, dq, dk over dk and p.v, dp, dv over dv; 6 dk + 4 dv a pair of query and
  // key.
  c.v_head_dim = 32;
  model.attention = c;
  const auto narrow = step_work(model, {.batch = 1, .accum = 1, .seq_len = 8});
  EXPECT_EQ(narrow.at("nsa.win_attn.backward").flops, 12 * 21 * (6 * 64 + 4 * 32));
  EXPECT_EQ(narrow.at("nsa.win_attn.backward").bytes, 2 * narrow.at("nsa.win_attn").bytes);
  // Three blocks of four tokens, two KV heads, 96 wide; eight tokens read, three written.
  EXPECT_EQ(narrow.at("nsa.compress").flops, 4 * 96 * 2 * 3);
  EXPECT_EQ(narrow.at("nsa.compress").bytes, 2 * 96 * 2 * (8 + 3));
  // q and three key sources, 64 wide, read and written: 12 + 3 * 2 heads.
  EXPECT_EQ(narrow.at("nsa.rope").bytes, 2 * 2 * 64 * 18 * 8);
  // Three outputs in, one out, 32 wide, and three logits a head.
  EXPECT_EQ(narrow.at("nsa.gate").bytes, 2 * 12 * 8 * (4 * 32 + 3));
  c.v_head_dim = 64;
  model.attention = c;
  model.num_layers = 3;
  const auto many = step_work(model, {.batch = 2, .accum = 4, .seq_len = 8});
  EXPECT_EQ(many.at("nsa.win_attn").flops, 24 * one.at("nsa.win_attn").flops);
}

TEST(ProfilePhases, DeferByNameWithoutAGpu) {
  RecordedCase recorded("hotspots");
  try {
    find_phase_kind("hotspots").run(recorded.one());
    FAIL();
  } catch (const NotDecided& why) {
    EXPECT_EQ(why.status(), "deferred");
    EXPECT_THAT(why.what(), HasSubstr("CUPTI_UNAVAILABLE: a profile needs a CUDA device"));
  }
}

TEST(ProfilePhases, StepsOfBothSubjectsRunOnACpu) {
  RecordedCase train("hotspots",
                     {{"model", "tiny_cpu"}, {"S", 32}, {"accum", 2}, {"fault", "P09"}});
  const ProfiledStep step = make_profiled_step(train.one());
  EXPECT_EQ(step.range, "train.step");
  EXPECT_EQ(step.tokens, 64);
  EXPECT_GT(step.run_ms(), 0);
  EXPECT_FALSE(step.ran().empty());
  EXPECT_EQ(make_profiled_step(train.one(), nullptr, 16).tokens, 32);

  RecordedCase call("hotspots",
                    {{"subject", "attention"}, {"S", 64}, {"dk", 16}, {"dv", 8}, {"fault", "P09"}});
  const ProfiledStep attention = make_profiled_step(call.one());
  EXPECT_GT(attention.run_ms(), 0);
  EXPECT_FALSE(attention.ran().empty());
  EXPECT_GT(attention.work.at("nsa.sel_attn").flops, 0);
}

TEST(ProfilePhases, LostRecordsMakeTheCasePartial) {
  RecordedCase recorded("hotspots");
  EXPECT_NO_THROW(refuse_losses(recorded.one(), 0));
  try {
    refuse_losses(recorded.one(), 12);
    FAIL();
  } catch (const NotDecided& why) {
    EXPECT_EQ(why.status(), "partial");
    EXPECT_STREQ(why.what(), "PROFILE_DROPPED: 12 records were lost");
  }
  EXPECT_EQ(recorded.metric("profile.dropped_count")["value"], 0);
}

TEST(ProfilePhases, RefuseUnknownSubjectsAndBackends) {
  const json wrong[] = {{{"subject", "both"}},
                        {{"backend", "gatter"}},
                        {{"fault", "P01"}, {"model", "tiny_cpu"}},
                        {{"model", "no_such"}}};
  for (const json& args : wrong) {
    RecordedCase recorded("hotspots", args);
    EXPECT_THROW(make_profiled_step(recorded.one()), ConfigError) << args;
  }
}

}  // namespace
}  // namespace suites
