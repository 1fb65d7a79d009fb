#include <gmock/gmock.h>

#include "suites/phases/testing.h"

namespace suites {
namespace {

using nlohmann::json;
using testing::StartsWith;

/// How the case of a timed phase ended, with the fault and without.
std::string end_of(const std::string& kind, json args, const std::string& fault) {
  if (!fault.empty()) args["fault"] = fault;
  const RecordedCase recorded(kind, args);
  base::protocol::CaseIn in = recorded.one().in;
  in.mode = "time";
  const PhaseCase one{in, "main", recorded.one().args, recorded.one().device,
                      recorded.one().emitter};
  return find_phase_kind(kind).run(one);
}

// Two arms that run the same code show no difference between backends, however fast they are.
TEST(NoContrast, EqualArmsFailTheCase) {
  struct Row {
    std::string kind, fault;
    json args;
  };
  for (const Row& row : std::vector<Row>{
           {"decode_ab",
            "no_contrast",
            {{"contexts", {64}}, {"Hq", 2}, {"Hkv", 1}, {"dk", 16}, {"rounds", 1}, {"steps", 1}}},
           {"checkpointing_ab", "no_contrast", {{"model", "tiny_cpu"}, {"S", 64}, {"rounds", 1}}},
           {"layer_scaling",
            "P07/sel_attn",
            {{"model", "tiny_cpu"}, {"layers", {1}}, {"S", 64}, {"rounds", 1}}},
           {"loader_ab",
            "no_contrast",
            {{"data", "synthetic"}, {"S", 64}, {"B", 1}, {"batches", 2}, {"rounds", 1}}}}) {
    EXPECT_THAT(end_of(row.kind, row.args, row.fault), StartsWith("NO_CONTRAST: ")) << row.kind;
    EXPECT_EQ(end_of(row.kind, row.args, ""), "") << row.kind;
  }
}

}  // namespace
}  // namespace suites
