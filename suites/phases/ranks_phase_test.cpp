// Phases that run on several ranks, as processes over Gloo.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/protocol/lines.h"
#include "base/protocol/ranks.h"
#include "base/testing/paths.h"

namespace suites {
namespace {

namespace fs = std::filesystem;
namespace protocol = base::protocol;
using nlohmann::json;

class RanksPhase : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / ("ranks_phase_" + std::to_string(getpid()));
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    // 1.8 M parameters: 6.89 MiB of gradients.
    std::ofstream(dir_ / "wide.json")
        << R"({"name": "wide", "vocab": 256, "dim": 256, "num_layers": 3, "mlp_hidden": 512, "seq_len": 16,
      "attention": {"num_heads": 4, "num_kv_heads": 2, "qk_head_dim": 32, "v_head_dim": 32, "block_size": 8,
      "block_stride": 4, "sel_block_size": 16, "top_n": 4, "window": 16}})";
  }
  void TearDown() override { fs::remove_all(dir_); }

  /// Both ranks to their ends; their transcripts.
  std::vector<protocol::Transcript> two_ranks(const std::string& kind, const json& args,
                                              const std::string& mode = "time") {
    const json request = {{"v", 1},
                          {"phase", "p"},
                          {"kind", kind},
                          {"group", "g01"},
                          {"mode", mode},
                          {"device", "cpu"},
                          {"seed", 7},
                          {"args", args},
                          {"cases", {{{"id", "all"}}}},
                          {"switches", json::object()},
                          {"out", dir_.string()}};
    std::ofstream(dir_ / "request.json") << request.dump() << "\n";
    const int port = protocol::free_port();
    EXPECT_GT(port, 0);
    std::string script;
    for (int rank = 0; rank < 2; ++rank) {
      const std::string r = std::to_string(rank);
      for (const auto& [name, value] : protocol::rank_variables(rank, 2, port))
        script += name + "=" + value + " ";
      script += base::build_dir() + "/bin/nsa-worker < request.json 3> r" + r + ".jsonl 2> err" +
                r + " & p" + r + "=$!; ";
    }
    script += "wait $p0; a=$?; wait $p1; exit $((a + $?))";
    EXPECT_EQ(std::system(("cd " + dir_.string() + "; " + script).c_str()), 0) << slurp("err0");
    std::vector<protocol::Transcript> all;
    for (const char* file : {"r0.jsonl", "r1.jsonl"})
      all.push_back(protocol::read_transcript(slurp(file), {mode, {"all"}}));
    return all;
  }
  std::string slurp(const std::string& name) const {
    std::ifstream in(dir_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  fs::path dir_;
};

template <class Line>
std::vector<Line> lines_of(const protocol::Transcript& transcript) {
  std::vector<Line> found;
  for (const auto& line : transcript.lines)
    if (const auto* one = std::get_if<Line>(&line.message)) found.push_back(*one);
  return found;
}

TEST_F(RanksPhase, SweepOfBucketsComparesArmsOnTheSameRanks) {
  const auto ranks = two_ranks(
      "ddp_sweep",
      {{"model", (dir_ / "wide.json").string()}, {"caps", {25, 1}}, {"rounds", 1}, {"calls", 1}});
  for (const auto& rank : ranks) {
    EXPECT_TRUE(rank.violations.empty()) << rank.violations.front().detail;
    ASSERT_EQ(rank.ended.size(), 1u);
    EXPECT_EQ(rank.ended.begin()->second.status, "ok") << rank.ended.begin()->second.reason;
  }
  EXPECT_TRUE(lines_of<protocol::Sample>(ranks[1]).empty()) << "rank 0 reports for all";
  EXPECT_EQ(lines_of<protocol::Hello>(ranks[1]).at(0).rank, 1);
  std::map<std::string, double> smallest;
  for (const auto& sample : lines_of<protocol::Sample>(ranks[0])) {
    const auto [at, fresh] = smallest.emplace(sample.series, *sample.value);
    if (!fresh) at->second = std::min(at->second, *sample.value);
  }
  for (const std::string arm : {"cap25", "cap25_bf16", "cap1", "cap1_bf16"}) {
    EXPECT_GT(smallest.at("step." + arm), 0) << arm;
    EXPECT_GT(smallest.at("comm_busy." + arm), 0) << arm;
    EXPECT_GT(smallest.at("comm_exposed." + arm), 0) << arm << ": the last sum is always exposed";
    EXPECT_GE(smallest.at("comm_overlapped." + arm), 0) << arm;
    EXPECT_LT(smallest.at("comm_overlapped." + arm), 100) << arm;
  }
  for (const std::string arm : {"alone", "cap1", "cap25"})
    EXPECT_TRUE(smallest.contains("step." + arm + ".aa")) << arm;
  EXPECT_GE(smallest.at("slowest.alone"),
            std::min(smallest.at("step.alone"), smallest.at("step.alone.aa")));
  std::map<std::string, bool> checks;
  for (const auto& check : lines_of<protocol::Check>(ranks[0])) checks[check.id] = check.ok;
  EXPECT_EQ(checks, (std::map<std::string, bool>{{"bucket_cap/cap1", true},
                                                 {"bucket_cap/cap1_bf16", true},
                                                 {"bucket_cap/cap25", true},
                                                 {"bucket_cap/cap25_bf16", true},
                                                 {"same_loss/cap1", true},
                                                 {"same_loss/cap25", true}}));
  EXPECT_GE(lines_of<protocol::Table>(ranks[0]).at(0).rows.size(), 10u);
}

/// Small enough for both ranks and all parts of the kind.
const json kSharded = {{"model", "tiny_cpu"}, {"S", 32},         {"steps", 4},
                       {"ranks", 2},          {"dtype", "fp64"}, {"bound", 1e-9}};

TEST_F(RanksPhase, ShardedTrainingIsThatOfWholeParameters) {
  fs::create_directories(dir_ / "resume_2_to_2/step-00000002");  // of an attempt that was cut off
  const auto ranks = two_ranks("sharded_training", kSharded, "check");
  for (const auto& rank : ranks) {
    EXPECT_TRUE(rank.violations.empty()) << rank.violations.front().detail;
    ASSERT_EQ(rank.ended.size(), 1u);
    EXPECT_EQ(rank.ended.begin()->second.status, "ok") << rank.ended.begin()->second.reason;
  }
  EXPECT_TRUE(lines_of<protocol::Check>(ranks[1]).empty()) << "rank 0 reports for all";
  std::map<std::string, std::string> checks;
  for (const auto& check : lines_of<protocol::Check>(ranks[0])) {
    EXPECT_TRUE(check.ok) << check.id << " " << check.detail;
    checks[check.id] = check.detail;
  }
  EXPECT_EQ(checks.size(), 8u);
  EXPECT_EQ(checks.at("equal/full.parameters"), "the same bits") << "sums of two terms";
  EXPECT_EQ(checks.at("resume/2_to_2.parameters"), "the same bits");
  EXPECT_TRUE(checks.contains("resume/2_to_1.loss"));
  std::map<std::string, json> metrics;
  for (const auto& metric : lines_of<protocol::Metric>(ranks[0]))
    metrics[metric.name] = metric.value;
  for (const char* name :
       {"none.peak_mib", "full.predicted_mib", "rates.gather_gb_s", "rates.average_gb_s",
        "rates.message_us", "rates.compute_ms", "rates.linear_pct", "model.here_pct",
        "model.optimism_ratio", "model.x1024_pct"})
    EXPECT_GT(metrics.at(name).get<double>(), 0) << name;
  EXPECT_LT(metrics.at("full.of_whole_ratio").get<double>(), 1);
  EXPECT_EQ(metrics.at("model.points_count"), 11);
  const auto tables = lines_of<protocol::Table>(ranks[0]);
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(tables[0].rows.size(), 6u) << "three arms of two ranks";
  EXPECT_EQ(tables[1].rows.size(), 11u) << "1 to 1,024 ranks";
  EXPECT_FALSE(fs::exists(dir_ / "resume_2_to_1")) << "checkpoints are removed";
}

/// Both ranks judge alike, also where one of them alone sees the difference.
TEST_F(RanksPhase, AShardedTrainingOfOtherWeightsDiffers) {
  json args = kSharded;
  args["parts"] = {"equivalence"};
  args["fault"] = "other_weights";
  const auto checks = lines_of<protocol::Check>(two_ranks("sharded_training", args, "check")[0]);
  EXPECT_EQ(checks.size(), 4u);
  for (const auto& check : checks) {
    EXPECT_FALSE(check.ok) << check.id;
    EXPECT_EQ(check.code, "SHARDING_DIFFERS");
    EXPECT_THAT(check.detail, testing::StartsWith("differs by up to "));
  }
}

const json kContext = {{"model", "tiny_cpu"}, {"S", 256}, {"equal_S", 128}, {"ranks", 2}};

TEST_F(RanksPhase, DividedSequencesHaveTheAttentionOfOneDevice) {
  const auto ranks = two_ranks("context_parallel", kContext, "check");
  for (const auto& rank : ranks) {
    EXPECT_TRUE(rank.violations.empty()) << rank.violations.front().detail;
    ASSERT_EQ(rank.ended.size(), 1u);
    EXPECT_EQ(rank.ended.begin()->second.status, "ok") << rank.ended.begin()->second.reason;
  }
  const auto checks = lines_of<protocol::Check>(ranks[0]);
  EXPECT_EQ(checks.size(), 21u) << "16 comparisons with one device, 5 of the oracle";
  for (const auto& check : checks) EXPECT_TRUE(check.ok) << check.id << " " << check.detail;
  std::map<std::string, json> metrics;
  for (const auto& metric : lines_of<protocol::Metric>(ranks[0]))
    metrics[metric.name] = metric.value;
  for (const char* name :
       {"time.one_ms", "time.divided_ms", "time.linear_pct", "time.pieces_ms", "time.predicted_ms",
        "time.unpredicted_ratio", "memory.one_mib", "memory.divided_mib", "rates.link_gb_s"})
    EXPECT_GT(metrics.at(name).get<double>(), 0) << name;
  EXPECT_NEAR(metrics.at("bytes.unpredicted_ratio").get<double>(), 1, 0.02);
  EXPECT_EQ(metrics.at("model.points_count"), 30);
  const auto tables = lines_of<protocol::Table>(ranks[0]);
  EXPECT_EQ(tables.at(0).rows.size(), 4u);
  for (size_t part = 1; part < 4; ++part)
    EXPECT_GT(tables[0].rows[part][1].get<double>(), 0) << tables[0].rows[part][0];
  EXPECT_EQ(tables.at(1).rows.size(), 30u);
}

TEST_F(RanksPhase, ARankWithOtherInputsDiffers) {
  json args = kContext;
  args["fault"] = "other_inputs";
  const auto checks = lines_of<protocol::Check>(two_ranks("context_parallel", args, "check")[0]);
  ASSERT_EQ(checks.size(), 21u);
  EXPECT_FALSE(checks[0].ok);
  EXPECT_EQ(checks[0].code, "SHARDING_DIFFERS");
  EXPECT_EQ(checks[20].id, "oracle/combine/fp32/o/divided");
  EXPECT_EQ(checks[20].code, "ORACLE_MISMATCH");
  EXPECT_THAT(checks[20].detail, testing::EndsWith("; rows of 2 of 2 ranks are off"));
}

TEST_F(RanksPhase, DividedSequencesAreTimedWithoutAComparisonIfItIsNotAskedFor) {
  json args = kContext;
  args["equal_S"] = 0;
  args["rows"] = 0;
  const auto ranks = two_ranks("context_parallel", args, "check");
  EXPECT_EQ(ranks[0].ended.begin()->second.status, "ok") << ranks[0].ended.begin()->second.reason;
  EXPECT_TRUE(lines_of<protocol::Check>(ranks[0]).empty());
}

/// Without a GPU nothing is profiled, and each rank defers without waiting for the other.
TEST_F(RanksPhase, AProfileOfTwoRanksIsDeferredOnBothOfThem) {
  const auto ranks =
      two_ranks("hotspots", {{"model", (dir_ / "wide.json").string()}, {"ranks", 2}}, "profile");
  for (const auto& rank : ranks) {
    EXPECT_TRUE(rank.violations.empty()) << rank.violations.front().detail;
    ASSERT_EQ(rank.ended.size(), 1u);
    EXPECT_EQ(rank.ended.begin()->second.status, "deferred");
    EXPECT_THAT(rank.ended.begin()->second.reason, testing::StartsWith("CUPTI_UNAVAILABLE: "));
    EXPECT_EQ(lines_of<protocol::Hello>(rank).at(0).world, 2);
  }
}

}  // namespace
}  // namespace suites
