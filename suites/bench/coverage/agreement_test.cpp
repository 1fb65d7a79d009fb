// What the table of nsa-bench coverage states of a call is what the operator answers and does, on
// the card of this machine, or on a CPU where there is none; part of bench_targets_test and of
// whole_call_gpu_test.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "nsa/backend/card_facts.h"
#include "nsa/diagnostics/run_record.h"
#include "nsa/nsa.h"
#include "suites/bench/coverage/kernel_coverage.h"

namespace suites {
namespace {

at::Device device() { return at::hasCUDA() ? at::kCUDA : at::kCPU; }

nsa::BranchChoices chosen_here(const nsa::WholeCall& call) {
  return nsa::choose_branches(call, nsa::card_facts(device()), "auto");
}

nsa::Config config_of(const nsa::WholeCall& call) {
  nsa::Config config;
  config.block_size = call.block_size, config.block_stride = call.block_stride;
  config.sel_block_size = call.sel_block_size, config.top_n = call.top_n;
  return config;
}

struct CallTensors {
  at::Tensor q, k, v, gates;
};
/// Of `tokens` tokens; each tensor is one number in memory, repeated.
CallTensors tensors_of(const CoveredCall& one, int64_t tokens) {
  const auto options = at::TensorOptions(device()).dtype(one.type);
  const auto make = [&](int64_t heads, int64_t dim) {
    return at::ones({1, 1, 1, 1}, options).expand({1, tokens, heads, dim});
  };
  const nsa::WholeCall& c = one.call;
  return {make(c.num_heads, c.qk_head_dim), make(c.num_kv_heads, c.qk_head_dim),
          make(c.num_kv_heads, c.v_head_dim), make(c.num_heads, 3)};
}

std::string name_of(const CoveredCall& one) {
  const nsa::WholeCall& c = one.call;
  return std::string(at::toString(one.type)) + " " + std::to_string(c.qk_head_dim) + "/" +
         std::to_string(c.v_head_dim) + " G " + std::to_string(c.num_heads) + " n " +
         std::to_string(c.top_n) + " blocks " + std::to_string(c.block_size) + "/" +
         std::to_string(c.block_stride) + "/" + std::to_string(c.sel_block_size);
}

/// why_not_fused by the table: the first branch without a kernel.
std::string expected_answer(const nsa::WholeCall& call) {
  const nsa::BranchChoices chosen = chosen_here(call);
  const std::pair<const char*, const nsa::KernelChoice&> branches[] = {
      {"compressed branch: ", chosen.compressed},
      {"window: ", chosen.window},
      {"selected branch: ", chosen.selected}};
  for (const auto& [name, choice] : branches)
    if (!choice.runs()) return name + choice.obstacle;
  return "";
}

TEST(CoverageAgrees, WhyNotFusedGivesTheReasonOfTheTable) {
  const std::vector<CoveredCall> calls = coverage_calls();
  ASSERT_GT(calls.size(), 5000u);
  for (const CoveredCall& one : calls) {
    const CallTensors x = tensors_of(one, one.call.num_keys);
    EXPECT_EQ(nsa::why_not_fused(x.q, x.k, x.v, x.gates, config_of(one.call)),
              expected_answer(one.call))
        << name_of(one);
  }
}

/// Branches that the record of a short call names as fused.
std::set<std::string> fused_branches(const CoveredCall& one, int64_t tokens) {
  const at::NoGradGuard no_graph;
  const CallTensors x = tensors_of(one, tokens);
  const auto record = c10::make_intrusive<nsa::RunRecord>();
  {
    const nsa::RunRecordScope scope(record);
    const at::Tensor o = nsa::attention(x.q, x.k, x.v, x.gates, config_of(one.call),
                                        {.backend = nsa::Backend::kFused});
    EXPECT_TRUE(o.isfinite().all().item<bool>());
  }
  std::set<std::string> fused;
  for (const nsa::RanBackend& row : record->rows())
    if (row.backend == "fused" && row.stage.ends_with("_attn")) fused.insert(row.stage);
  return fused;
}

TEST(CoverageAgrees, TheBranchesThatRunAreThoseOfTheTable) {
  constexpr int64_t kTokens = 150;
  for (CoveredCall one : coverage_calls()) {
    one.call.num_keys = kTokens;
    const nsa::WholeCall& c = one.call;
    const bool tried = one.type == at::kBFloat16 && (c.num_heads == 4 || c.num_heads == 32) &&
                       (c.top_n == 16 || c.top_n == 64) && c.block_size == 32;
    if (!tried) continue;
    const nsa::BranchChoices chosen = chosen_here(c);
    std::set<std::string> expected;
    // Where the kernel cannot choose blocks it computes the compressed branch without that.
    if (chosen.window.runs()) expected.insert({"cmp_attn", "win_attn"});
    if (chosen.selected.runs()) expected.insert("sel_attn");
    EXPECT_EQ(fused_branches(one, kTokens), expected) << name_of(one);
  }
}

}  // namespace
}  // namespace suites
