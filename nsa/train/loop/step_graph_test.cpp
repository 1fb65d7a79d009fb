// What a step must be to become a CUDA graph; the graph itself: step_graph_gpu_test.cpp.
#include "nsa/train/loop/step_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nsa/program/input_error.h"

namespace nsa::train {
namespace {

using ::testing::HasSubstr;

std::string refusal(const TrainOptions& options, bool checkpointing, c10::Device device) {
  try {
    require_graph(run_obstacle(options, checkpointing, device));
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(StepGraph, RefusesStepsThatDiffer) {
  const TrainOptions plain;
  TrainOptions packed;
  packed.packing = true;
  EXPECT_THAT(refusal(plain, false, c10::Device("cpu")),
              HasSubstr("cuda_graph must be auto or off on a device without CUDA, got on"));
#ifdef NSA_WITH_CUDA
  const c10::Device cuda("cuda:0");
  EXPECT_EQ(refusal(plain, false, cuda), "");
  EXPECT_THAT(refusal(packed, false, cuda), HasSubstr("with packing"));
  EXPECT_THAT(refusal(plain, true, cuda), HasSubstr("with activation_checkpointing"));
#else
  EXPECT_THAT(refusal(plain, false, c10::Device("cuda:0")), HasSubstr("without CUDA"));
#endif
}

TEST(StepGraph, BackendsThatReadValuesOnTheHostAreNamed) {
  const auto obstacle = [](const char* stage, const char* backend, const char* reason = "") {
    return graph_obstacle({{"compress", "plain", 2, "fused", "", ""},
                           {"sel_attn.request", "gather", 1, "fused", "", "overridden"},
                           {stage, backend, 1, "fused", "", reason}});
  };
  for (const char* stage : {"cmp_attn", "sel_attn", "win_attn", "sel_attn.backward", "ranges"})
    EXPECT_EQ(obstacle(stage, "fused"), "") << stage;
  EXPECT_EQ(obstacle("ranges", "v2"), "");
  EXPECT_EQ(obstacle("dense_attn", "flash"), "");
  EXPECT_EQ(obstacle("gate", "plain"), "");
  EXPECT_EQ(obstacle("sel_attn.backward", "gather", "dk is 20"),
            "sel_attn.backward ran gather, which reads values on the host (dk is 20)");
  for (const char* backend : {"gather", "packed", "varlen", "masked"})
    EXPECT_THAT(obstacle("sel_attn", backend), HasSubstr(backend));
  EXPECT_THAT(obstacle("win_attn", "flash"), HasSubstr("win_attn ran flash"));
  EXPECT_THAT(obstacle("win_attn.non_finite_rows", "plain"), HasSubstr("ran plain"));
  EXPECT_THAT(obstacle("cmp_attn", "plain"), HasSubstr("cmp_attn ran plain"));
  EXPECT_THAT(obstacle("select", "plain"), HasSubstr("select ran plain"));
  EXPECT_EQ(obstacle("select", "fused"), "");
  EXPECT_THAT(obstacle("dense_attn", "plain"), HasSubstr("dense_attn ran plain"));
  EXPECT_THAT(obstacle("ranges", "v1"), HasSubstr("ranges ran v1"));
}

}  // namespace
}  // namespace nsa::train
