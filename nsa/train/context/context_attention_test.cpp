// Sequences divided among ranks, which are threads over Gloo, against one device and the oracle.
#include "nsa/train/context/context_attention.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "nsa/layer/nsa_inputs.h"
#include "nsa/layer/random_inputs.h"
#include "nsa/ops/common/oracle_util.h"
#include "nsa/program/input_error.h"
#include "nsa/reference/reference.h"
#include "nsa/train/ranks/rank_threads_testing.h"

namespace nsa::train {
namespace {

namespace ref = reference;

constexpr int64_t kBatch = 2;

/// Of a sequence that `world` ranks can divide, about the same for all.
int64_t tokens_for(int64_t world) {
  if (world > 4) return 32 * world;  // pieces of 16 tokens, no shorter than the window reaches back
  return world == 3 ? 96 : 128;
}

/// Every branch at work, blocks that span two parts, and choices that reach into all of them.
NsaConfig small(Phi phi = Phi::kMean, RopeMode rope = RopeMode::kBeforePool) {
  NsaConfig c;
  c.num_heads = 4, c.num_kv_heads = 2, c.qk_head_dim = 8, c.v_head_dim = 6;
  c.block_size = 8, c.block_stride = 4, c.sel_block_size = 8, c.top_n = 5;
  c.window = 13, c.phi = phi, c.rope = rope;
  return c;
}

/// `body` on every rank at the same time; the first error is thrown here.
void on_ranks(int64_t world, const std::function<void(RankGroup&, CollectiveLog&)>& body) {
  on_rank_threads(world, [&](const RankPlace&, std::unique_ptr<RankGroup>& group) {
    CollectiveLog log;
    body(*group, log);
  });
}

/// This rank's rows of the inputs of a call, leaves of their own; weights too.
NsaInputs part_of(const NsaInputs& whole, const ContextShard& shard) {
  NsaInputs part = map_tokens(whole, [&](const at::Tensor& x) { return pieces_of(x, shard); });
  for (auto& [name, tensor] : differentiable(part))
    *tensor = tensor->detach().clone().set_requires_grad(true);
  return part;
}

struct Results {
  std::map<std::string, at::Tensor> values;  ///< o, block_idx, gradients by name of the input
};

Results one_device(const NsaInputs& whole, const NsaConfig& config, const NsaOptions& options,
                   const at::Tensor& d_o) {
  NsaInputs in = part_of(whole, {0, 1, whole.q.size(1)});
  const NsaOutputs out = nsa_attention(in, config, options);
  out.o.backward(d_o);
  Results r{{{"o", out.o.detach()}, {"block_idx", out.block_idx}}};
  for (auto& [name, tensor] : differentiable(in)) r.values[name] = tensor->grad();
  return r;
}

/// The parts of all ranks joined; gradients of weights summed.
Results divided(int64_t world, const NsaInputs& whole, const NsaConfig& config,
                const NsaOptions& options, const at::Tensor& d_o, SelectedTransfer transfer,
                const at::Tensor& cu_seqlens = {}) {
  std::vector<Results> parts(static_cast<size_t>(world));
  on_ranks(world, [&](RankGroup& group, CollectiveLog& log) {
    ContextAttention attend(group, log, config, whole.q.size(1), transfer);
    const ContextShard& shard = attend.shard();
    NsaInputs in = part_of(whole, shard);
    const NsaOutputs out = attend(in, options, cu_seqlens);
    out.o.backward(pieces_of(d_o, shard));
    Results& r = parts[static_cast<size_t>(group.rank())];
    r.values = {{"o", out.o.detach()}, {"block_idx", out.block_idx}};
    for (auto& [name, tensor] : differentiable(in)) r.values[name] = tensor->grad();
    if (transfer != SelectedTransfer::kAuto && !cu_seqlens.defined()) {
      EXPECT_EQ(attend.last_transfer(), transfer);
    }
  });
  Results joined;
  for (const auto& [name, value] : parts[0].values) {
    std::vector<at::Tensor> of_ranks, first, second;
    for (const Results& r : parts) {
      of_ranks.push_back(r.values.at(name));
      if (name.starts_with("phi")) continue;
      const auto halves = of_ranks.back().chunk(2, 1);
      first.push_back(halves[0]);
      second.insert(second.begin(), halves[1]);
    }
    joined.values[name] = name.starts_with("phi")
                              ? at::stack(of_ranks).sum(0)
                              : at::cat({at::cat(first, 1), at::cat(second, 1)}, 1);
  }
  return joined;
}

void expect_close(const Results& have, const Results& want, double relative) {
  ASSERT_EQ(have.values.size(), want.values.size());
  ASSERT_GE(have.values.size(), 10U);
  for (const auto& [name, b] : want.values) {
    const at::Tensor& a = have.values.at(name);
    ASSERT_EQ(a.sizes(), b.sizes()) << name;
    if (name == "block_idx") {
      EXPECT_TRUE(at::equal(a, b)) << name;
      continue;
    }
    const double scale = std::max(1.0, b.abs().max().item<double>());
    const double difference = (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
    EXPECT_LE(difference, relative * scale) << name;
    EXPECT_GT(b.abs().max().item<double>(), 0) << name << " decides nothing";
  }
}

class ContextAttentionTest : public testing::Test {
 protected:
  /// LibTorch records the collectives of all groups of a process in one place, which is not safe
  /// for threads: off. Ranks of a run are processes.
  static void SetUpTestSuite() {
    setenv("TORCH_FR_BUFFER_SIZE", "0", 1);
    setenv("TORCH_NCCL_TRACE_BUFFER_SIZE", "0", 1);
  }
  void SetUp() override { at::manual_seed(7); }
};

TEST_F(ContextAttentionTest, ForwardAndBackwardAreThoseOfOneDevice) {
  const auto hold = [](Phi phi, RopeMode rope, int64_t world, SelectedTransfer transfer) {
    SCOPED_TRACE(to_string(phi) + " " + to_string(rope) + ", " + std::to_string(world) +
                 " ranks, " + to_string(transfer));
    const NsaConfig config = small(phi, rope);
    const NsaInputs in = random_inputs(config, kBatch, tokens_for(world), at::kDouble);
    const at::Tensor d_o = at::randn({kBatch, tokens_for(world), 4, 6}, at::kDouble);
    expect_close(divided(world, in, config, {}, d_o, transfer), one_device(in, config, {}, d_o),
                 1e-12);
  };
  for (const Phi phi : {Phi::kMean, Phi::kConv, Phi::kMlp})
    for (const RopeMode rope : {RopeMode::kBeforePool, RopeMode::kBlockStart, RopeMode::kNone}) {
      hold(phi, rope, 2, SelectedTransfer::kGather);
      hold(phi, rope, 3, SelectedTransfer::kFetch);
    }
  for (const SelectedTransfer transfer :
       {SelectedTransfer::kAuto, SelectedTransfer::kFetch, SelectedTransfer::kGather})
    hold(Phi::kMean, RopeMode::kBeforePool, 4, transfer);
  for (const int64_t world : {5, 6, 7, 8})
    hold(Phi::kMean, RopeMode::kBeforePool, world, SelectedTransfer::kAuto);
  hold(Phi::kMean, RopeMode::kBeforePool, 1, SelectedTransfer::kAuto);
}

/// fp32 by the CPU kernels, as nsa-train runs it, against the plain operators in fp64.
TEST_F(ContextAttentionTest, CpuKernelsAgreeWithPlainOperators) {
  const NsaConfig config = small();
  const NsaInputs in = random_inputs(config, kBatch, 96, at::kFloat);
  const at::Tensor d_o = at::randn({kBatch, 96, 4, 6});
  NsaOptions kernels;
  kernels.keep_scores = false;
  kernels.sel = SelBackend::kCpu;
  kernels.cmp = kernels.win = BranchBackend::kCpu;
  const auto to_double = [](const at::Tensor& x) { return x.to(at::kDouble); };
  const Results want = one_device(map_tokens(in, to_double), config, {}, to_double(d_o));
  for (const SelectedTransfer transfer : {SelectedTransfer::kGather, SelectedTransfer::kFetch})
    expect_close(divided(3, in, config, kernels, d_o, transfer), want, 2e-6);
}

ref::Outputs by_oracle(const NsaConfig& config, const NsaInputs& in) {
  ref::Inputs r;
  r.q = ref_of<double>(in.q);
  r.k_cmp_src = ref_of<double>(in.k_cmp_src), r.v_cmp_src = ref_of<double>(in.v_cmp_src);
  r.k_sel = ref_of<double>(in.k_sel), r.v_sel = ref_of<double>(in.v_sel);
  r.k_win = ref_of<double>(in.k_win), r.v_win = ref_of<double>(in.v_win);
  r.gates = ref_of<double>(in.gate_logits);
  return ref::forward(ref_of(config), r);
}

/// Documents that end inside of pieces, one of a token, one shorter than a block, and some that
/// span several pieces: outputs are the oracle's of each document, gradients those of one device.
TEST_F(ContextAttentionTest, PackedRowsOfEveryPartAreThoseOfTheOracle) {
  const NsaConfig config = small();
  const std::vector<int32_t> starts = {0, 1, 6, 77, 128, 128 + 127, 256};
  const at::Tensor cu_seqlens = at::tensor(starts, at::kInt);
  const NsaInputs in = random_inputs(config, kBatch, 128, at::kDouble);
  const at::Tensor d_o = at::randn({kBatch, 128, 4, 6}, at::kDouble);
  NsaInputs flat = map_tokens(in, [](const at::Tensor& x) { return x.flatten(0, 1); });
  for (auto& [name, tensor] : differentiable(flat))
    *tensor = tensor->detach().clone().set_requires_grad(true);
  flat.cu_seqlens = cu_seqlens;
  nsa_attention(flat, config).o.backward(d_o.flatten(0, 1));
  for (const int64_t world : {2, 4}) {
    const Results have = divided(world, in, config, {}, d_o, SelectedTransfer::kAuto, cu_seqlens);
    const at::Tensor o = have.values.at("o").flatten(0, 1);
    for (size_t doc = 0; doc + 1 < starts.size(); ++doc) {
      const NsaInputs own = map_tokens(in, [&](const at::Tensor& x) {
        return x.flatten(0, 1).slice(0, starts[doc], starts[doc + 1]).unsqueeze(0);
      });
      const at::Tensor want = to_aten(by_oracle(config, own).o, at::kDouble).squeeze(0);
      EXPECT_LE((o.slice(0, starts[doc], starts[doc + 1]) - want).abs().max().item<double>(), 1e-12)
          << "document " << doc << " on " << world;
    }
    for (auto& [name, tensor] : differentiable(flat)) {
      const at::Tensor& got = have.values.at(name);
      EXPECT_LE((got.view_as(tensor->grad()) - tensor->grad()).abs().max().item<double>(), 1e-12)
          << name << " on " << world;
    }
  }
}

TEST_F(ContextAttentionTest, RowsOfEveryPartAreThoseOfTheOracle) {
  const NsaConfig config = small();
  const NsaInputs in = random_inputs(config, kBatch, 128, at::kDouble);
  const ref::Outputs want = by_oracle(config, in);
  const at::Tensor d_o = at::randn({kBatch, 128, 4, 6}, at::kDouble);
  const Results have = divided(4, in, config, {}, d_o, SelectedTransfer::kFetch);
  const at::Tensor o = to_aten(want.o, at::kDouble);
  EXPECT_LE((have.values.at("o") - o).abs().max().item<double>(), 1e-12);
  EXPECT_TRUE(at::equal(have.values.at("block_idx"), to_aten(want.block_idx, at::kInt)));
}

TEST_F(ContextAttentionTest, RepeatedCallsHaveTheSameBits) {
  const NsaConfig config = small();
  const NsaInputs in = random_inputs(config, kBatch, 96, at::kFloat);
  const at::Tensor d_o = at::randn({kBatch, 96, 4, 6});
  for (const SelectedTransfer transfer : {SelectedTransfer::kGather, SelectedTransfer::kFetch}) {
    const Results first = divided(3, in, config, {}, d_o, transfer);
    for (int i = 0; i < 3; ++i)
      for (const auto& [name, value] : divided(3, in, config, {}, d_o, transfer).values)
        EXPECT_TRUE(at::equal(value, first.values.at(name))) << name;
  }
}

TEST_F(ContextAttentionTest, BytesAreThoseOfTheFormula) {
  const NsaConfig config = small();
  const NsaInputs in = random_inputs(config, kBatch, 96, at::kFloat);
  on_ranks(3, [&](RankGroup& group, CollectiveLog& log) {
    ContextAttention attend(group, log, config, 96, SelectedTransfer::kGather);
    attend(part_of(in, attend.shard())).o.sum().backward();
    const int64_t row = kBatch * 2 * (8 + 6) * 4;  // K and V of one token
    const int64_t neighbours = group.rank() == 1 ? 2 : 1;
    const ReceivedBytes& got = attend.received();
    EXPECT_EQ(got.at("selected"), 2 * 32 * row);
    EXPECT_EQ(got.at("compressed"), 2 * 8 * row);
    EXPECT_EQ(got.at("compression"), neighbours * 4 * row);
    EXPECT_EQ(got.at("window"), neighbours * 12 * row);
    EXPECT_EQ(got.at("selected, gradients"), 2 * 32 * row);
    EXPECT_EQ(got.at("window, gradients"), neighbours * 12 * row);
  });
}

TEST_F(ContextAttentionTest, WhatCannotBeDividedIsNamedBeforeAnythingIsSent) {
  on_ranks(2, [](RankGroup& group, CollectiveLog& log) {
    EXPECT_THROW(ContextAttention(group, log, small(), 100), InputError);
    EXPECT_THROW(ContextAttention(group, log, small(), 32), InputError);
    ContextAttention attend(group, log, small(), 128);
    EXPECT_THAT([&] { attend(random_inputs(small(), 1, 40)); },
                testing::ThrowsMessage<c10::Error>(
                    testing::HasSubstr("q must have the 64 tokens of this rank's part, got 40")));
    NsaOptions given;
    given.block_idx = at::zeros({1, 64, 2, 5}, at::kInt);
    EXPECT_THAT([&] { attend(random_inputs(small(), 1, 64), given); },
                testing::ThrowsMessage<c10::Error>(
                    testing::HasSubstr("options.block_idx must not be given")));
    EXPECT_EQ(log.last(), CollectiveLog().last()) << "nothing was sent";
  });
}

}  // namespace
}  // namespace nsa::train
