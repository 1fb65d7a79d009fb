// The decode step as one launch against the plain step. Ends with 77 (skipped) where there is no
// CUDA device.
#include <ATen/core/grad_mode.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>

#include "nsa/decode/test_util.h"
#include "nsa/ops/common/check.h"
#include "nsa/ops/select/top_n.h"

namespace nsa {
namespace {

using ::testing::HasSubstr;

NsaConfig config_of(int64_t group, int64_t kv_heads, int64_t dk, int64_t dv) {
  NsaConfig c;
  c.num_heads = group * kv_heads, c.num_kv_heads = kv_heads;
  c.qk_head_dim = dk, c.v_head_dim = dv;
  return c;
}

NsaOptions fused() {
  NsaOptions options;
  options.sel = SelBackend::kFused;
  options.cmp = options.win = BranchBackend::kFused;
  options.strict_backend = true;
  return options;
}

NsaInputs on(at::Device device, at::ScalarType type, const NsaInputs& x) {
  NsaInputs moved = map_tokens(x, [&](const at::Tensor& one) { return one.to(device, type); });
  for (PhiWeights* phi : {&moved.phi_k, &moved.phi_v})
    for (at::Tensor* w : {&phi->conv, &phi->pe, &phi->w1, &phi->b1, &phi->w2, &phi->b2})
      if (w->defined()) *w = w->to(device, type);
  return moved;
}

NsaInputs token_at(const NsaInputs& x, int64_t t, int64_t count = 1) {
  return narrow_tokens(x, t, count);
}

/// Largest difference in units of the largest value; equal infinities differ by nothing.
double distance(const at::Tensor& have_in, const at::Tensor& want_in) {
  const at::Tensor have = have_in.to(at::kCPU, at::kDouble),
                   want = want_in.to(at::kCPU, at::kDouble);
  const at::Tensor difference = (have - want).abs().masked_fill(have.eq(want), 0.0);
  const double scale = at::where(want.isfinite(), want.abs(), 1.0).max().item<double>();
  return difference.max().item<double>() / std::max(scale, 1e-12);
}

/// One launch a step of `count` tokens, and plain steps in fp64 on the CPU with the blocks that the
/// launch chose, from the same rounded inputs.
void expect_agreement(const NsaConfig& c, at::ScalarType type, const std::vector<int64_t>& lengths,
                      int64_t steps, const LayerCacheOptions& memory = {}, int64_t count = 1) {
  const at::NoGradGuard no_grad;
  const auto batch = static_cast<int64_t>(lengths.size());
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  const NsaInputs drawn = random_inputs(c, batch, longest + steps * count, at::kDouble);
  const NsaInputs low = on(at::kCUDA, type, drawn), exact = on(at::kCPU, at::kDouble, low);
  const int64_t capacity = longest + steps * count;
  LayerCache cache(c, batch, capacity, at::TensorOptions(at::kCUDA).dtype(type), memory);
  LayerCache wanted(c, batch, capacity, at::kDouble, memory);
  cache.prefill(low, lengths);
  wanted.prefill(exact, lengths);
  const double bound = type == at::kHalf ? 5e-3 : 4e-2;
  for (int64_t step = 0; step < steps; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    at::Tensor t = at::empty({batch, count}, at::kLong);
    for (int64_t b = 0; b < batch; ++b)
      t[b] = at::arange(cache.num_tokens(b), cache.num_tokens(b) + count);
    const DecodeOutputs have = cache.step(token_at(low, longest + step * count, count), fused());
    NsaOptions same_blocks;
    same_blocks.block_idx = have.block_idx.cpu();
    const DecodeOutputs want =
        wanted.step(token_at(exact, longest + step * count, count), same_blocks);
    // Given the scores the choice is exact.
    EXPECT_TRUE(at::equal(have.block_idx, select_blocks(have.scores, t.to(at::kCUDA), c)));
    EXPECT_TRUE(at::equal(have.ranges.cpu(), want.ranges));
    EXPECT_TRUE(at::equal(have.reads.cpu(), want.reads));
    for (const auto member : {&NsaOutputs::q_rot, &NsaOutputs::o_cmp, &NsaOutputs::o_sel,
                              &NsaOutputs::o_win, &NsaOutputs::o, &NsaOutputs::lse_cmp,
                              &NsaOutputs::lse_sel, &NsaOutputs::lse_win, &NsaOutputs::gates})
      EXPECT_LE(distance(have.*member, want.*member), bound);
    EXPECT_LE(distance(have.scores, want.scores), 4 * bound);  // of probabilities of keys in `type`
    for (const RanBackend& row : have.ran) EXPECT_EQ(row.backend, "fused") << row.stage;
  }
  EXPECT_TRUE(at::equal(cache.counters().emission_reads.cpu(), wanted.counters().emission_reads));
  for (int64_t b = 0; b < batch; ++b) {
    ASSERT_EQ(cache.num_blocks(b), wanted.num_blocks(b));
    EXPECT_LE(distance(cache.blocks(b).first, wanted.blocks(b).first), bound);
  }
}

TEST(OneLaunch, AgreesWithThePlainStepInFp64) {
  at::manual_seed(1);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    SCOPED_TRACE(c10::toString(type));
    expect_agreement(config_of(6, 2, 64, 64), type, {70, 700, 1500}, 20);
    expect_agreement(config_of(4, 2, 128, 128), type, {1300, 510}, 20);
    expect_agreement(config_of(16, 1, 192, 128), type, {40, 2000}, 5);
  }
}

TEST(OneLaunch, SeveralTokensAgreeWithThePlainStepInFp64) {
  at::manual_seed(7);
  for (const int64_t count : {2, 4, 8}) {
    SCOPED_TRACE(count);
    expect_agreement(config_of(6, 2, 64, 64), at::kBFloat16, {70, 700, 1500}, 5, {}, count);
    expect_agreement(config_of(4, 2, 128, 128), at::kHalf, {1300, 510}, 5, {}, count);
    expect_agreement(config_of(16, 1, 192, 128), at::kBFloat16, {40, 2000}, 3, {}, count);
  }
}

// Twelve tokens are two launches; of eight drafted ones five are taken back.
TEST(OneLaunch, TokensThatAreTakenBackLeaveNothing) {
  const at::NoGradGuard no_grad;
  at::manual_seed(8);
  const NsaConfig c = config_of(6, 2, 64, 64);
  const NsaInputs in = on(at::kCUDA, at::kBFloat16, random_inputs(c, 2, 640, at::kDouble));
  const auto options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  LayerCache drafted(c, 2, 700, options), certain(c, 2, 700, options);
  for (LayerCache* cache : {&drafted, &certain}) cache->prefill(token_at(in, 0, 520), {520, 33});
  for (int64_t t = 520; t < 560; t += 15) {
    drafted.step(token_at(in, t, 3), fused());
    drafted.step(token_at(in, 600, 5), fused());  // other tokens
    for (const int64_t b : {0, 1}) drafted.truncate(b, certain.num_tokens(b) + 3);
    certain.step(token_at(in, t, 3), fused());
    const DecodeOutputs have = drafted.step(token_at(in, t + 3, 12), fused()),
                        want = certain.step(token_at(in, t + 3, 12), fused());
    EXPECT_TRUE(at::equal(have.o, want.o));
    EXPECT_TRUE(at::equal(have.block_idx, want.block_idx));
    EXPECT_TRUE(at::equal(drafted.blocks(1).second, certain.blocks(1).second));
  }
}

TEST(OneLaunch, AScaleOfAllBranches) {
  at::manual_seed(6);
  NsaConfig c = config_of(6, 2, 64, 64);
  c.scale_cmp = c.scale_sel = c.scale_win = 0.06;
  expect_agreement(c, at::kBFloat16, {70, 700}, 20);
}

TEST(OneLaunch, EveryRotationCompressionAndGate) {
  at::manual_seed(2);
  for (const RopeMode rope : {RopeMode::kBeforePool, RopeMode::kBlockStart, RopeMode::kNone})
    for (const Phi phi : {Phi::kMean, Phi::kConv, Phi::kMlp})
      for (const GateActivation gate : {GateActivation::kSigmoid, GateActivation::kNone}) {
        NsaConfig c = config_of(4, 2, 64, 64);
        c.rope = rope, c.phi = phi, c.gate = gate;
        SCOPED_TRACE(to_string(rope) + " " + to_string(phi) + " " + to_string(gate));
        const at::NoGradGuard no_grad;
        const NsaInputs in = on(at::kCUDA, at::kBFloat16, random_inputs(c, 2, 120, at::kDouble));
        const auto options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
        LayerCache one(c, 2, 200, options), plain(c, 2, 200, options);
        one.prefill(in, {90, 33});
        plain.prefill(in, {90, 33});
        for (int64_t step = 0; step < 20; ++step) {
          const DecodeOutputs have = one.step(token_at(in, 100 + step), fused());
          const DecodeOutputs want = plain.step(token_at(in, 100 + step));
          ASSERT_TRUE(at::equal(have.block_idx, want.block_idx));  // all blocks have a place
          EXPECT_LE(distance(have.o, want.o), 4e-2);
          EXPECT_LE(distance(have.lse_cmp, want.lse_cmp), 1e-2);
          EXPECT_TRUE(at::equal(have.reads, want.reads));
        }
      }
}

TEST(OneLaunch, LayoutsOfMemoryAndSomeOfTheSequences) {
  at::manual_seed(3);
  LayerCacheOptions memory;
  memory.page_size = 48;
  expect_agreement(config_of(4, 2, 64, 64), at::kBFloat16, {300, 1000}, 3, memory);
  memory.layout = CacheLayout::kContiguous;
  expect_agreement(config_of(4, 2, 64, 64), at::kBFloat16, {300, 1000}, 3, memory);

  const at::NoGradGuard no_grad;
  const NsaConfig c = config_of(4, 2, 64, 64);
  const NsaInputs in = on(at::kCUDA, at::kBFloat16, random_inputs(c, 3, 200, at::kDouble));
  const auto options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  LayerCache all(c, 3, 300, options), some(c, 3, 300, options);
  all.prefill(in, {150, 60, 199});
  some.prefill(in, {150, 60, 199});
  const DecodeOutputs whole = all.step(token_at(in, 0), fused());
  const at::Tensor picked = at::tensor({2, 0}, at::TensorOptions(at::kCUDA).dtype(at::kLong));
  const NsaInputs two =
      map_tokens(token_at(in, 0), [&](const at::Tensor& x) { return x.index_select(0, picked); });
  const DecodeOutputs part = some.step(two, fused(), {{2, 0}});
  EXPECT_TRUE(at::equal(part.o, whole.o.index_select(0, picked)));
  EXPECT_EQ(some.num_tokens(1), 60);
}

void expect_replays(int64_t count) {
  const at::NoGradGuard no_grad;
  at::manual_seed(4);
  const NsaConfig c = config_of(6, 2, 64, 64);
  constexpr int64_t kFirst = 500, kSteps = 40;
  const NsaInputs in =
      on(at::kCUDA, at::kBFloat16, random_inputs(c, 2, kFirst + kSteps, at::kDouble));
  const auto options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  LayerCache eager(c, 2, 700, options), replayed(c, 2, 700, options);
  eager.prefill(in, {kFirst, 77});
  replayed.prefill(in, {kFirst, 77});
  eager.reserve(kFirst + kSteps);  // cut alike
  replayed.reserve(kFirst + kSteps);
  NsaInputs token = map_tokens(token_at(in, kFirst, count),
                               [](const at::Tensor& x) { return x.contiguous().clone(); });
  at::cuda::CUDAGraph graph;
  DecodeOutputs out;
  {
    const c10::cuda::CUDAStreamGuard side(c10::cuda::getStreamFromPool());
    graph.capture_begin();
    out = replayed.step(token, fused());
    graph.capture_end();
  }
  EXPECT_EQ(replayed.num_tokens(0), kFirst);  // nothing has run
  at::cuda::getCurrentCUDAStream().synchronize();
  for (int64_t step = 0; step < kSteps; step += count) {
    const NsaInputs next = token_at(in, kFirst + step, count);
    const at::Tensor from[] = {next.q,     next.k_cmp_src, next.v_cmp_src, next.k_sel,
                               next.v_sel, next.k_win,     next.v_win,     next.gate_logits};
    const at::Tensor to[] = {token.q,     token.k_cmp_src, token.v_cmp_src, token.k_sel,
                             token.v_sel, token.k_win,     token.v_win,     token.gate_logits};
    for (size_t i = 0; i < std::size(to); ++i) to[i].copy_(from[i]);
    replayed.before_replay(count);
    graph.replay();
    const DecodeOutputs want = eager.step(next, fused());
    ASSERT_TRUE(at::equal(out.o, want.o)) << step;
    ASSERT_TRUE(at::equal(out.block_idx, want.block_idx)) << step;
    ASSERT_TRUE(at::equal(out.reads, want.reads)) << step;
  }
  EXPECT_EQ(replayed.num_tokens(0), kFirst + kSteps);
  EXPECT_EQ(replayed.num_blocks(1), eager.num_blocks(1));
  EXPECT_TRUE(at::equal(replayed.blocks(0).first, eager.blocks(0).first));
}

TEST(OneLaunch, ACapturedStepServesEveryFollowingToken) {
  for (const int64_t count : {1, 4, 8}) {
    SCOPED_TRACE(count);
    expect_replays(count);
  }
}

TEST(OneLaunch, RecordsOrRefusesUnsupportedCalls) {
  const at::NoGradGuard no_grad;
  const NsaConfig c = config_of(4, 2, 64, 32);
  const NsaInputs in = on(at::kCUDA, at::kBFloat16, random_inputs(c, 1, 9, at::kDouble));
  LayerCache cache(c, 1, 20, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16));
  for (NsaConfig other = config_of(4, 2, 64, 64); const double scale : {0.1, 0.2}) {
    other.scale_sel = scale;
    if (scale == 0.2) other.scale_sel.reset(), other.window = 0;
    const NsaInputs own = on(at::kCUDA, at::kBFloat16, random_inputs(other, 1, 9, at::kDouble));
    LayerCache of_own(other, 1, 20, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16));
    EXPECT_THAT(error_of([&] { of_own.step(token_at(own, 0), fused()); }),
                HasSubstr("the one launch of a decode step "));
  }
  EXPECT_THAT(
      error_of([&] { cache.step(token_at(in, 0), fused()); }),
      HasSubstr("nsa::cmp_attn: backend must be fused, got cache: head dims dk/dv are none"));
  NsaOptions lenient = fused();
  lenient.strict_backend = false;
  bool seen = false;
  for (const RanBackend& row : cache.step(token_at(in, 0), lenient).ran)
    seen |= row.stage == "win_attn" && row.requested == "fused" && row.backend == "cache" &&
            row.reason.find("head dims") != std::string::npos;
  EXPECT_TRUE(seen);
}

}  // namespace
}  // namespace nsa
