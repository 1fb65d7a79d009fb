// Contracts of the whole layer: invariants, arguments, types, the module.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "nsa/layer/branches.h"
#include "nsa/layer/fused/split_projection.h"
#include "nsa/layer/nsa_attention.h"
#include "nsa/layer/nsa_module.h"
#include "nsa/layer/random_inputs.h"

namespace nsa {
namespace {

using ::testing::HasSubstr;

NsaConfig small() {
  NsaConfig c;
  c.num_heads = 4, c.num_kv_heads = 2, c.qk_head_dim = 8, c.v_head_dim = 6;
  c.block_size = 8, c.block_stride = 4, c.sel_block_size = 16, c.top_n = 4, c.window = 12;
  return c;
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "accepted";
}

/// Same bits, so that a NaN equals itself and -0 differs from +0.
bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return at::equal(a.contiguous().view(at::kLong), b.contiguous().view(at::kLong));
}

TEST(Layer, TheFutureChangesNoBitOfThePast) {
  const double values[] = {0.5, 1e4, std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()};
  const NsaConfig c = small();
  for (const int64_t s : {24, 61}) {  // S = 2w, and S > w, no multiple of anything
    at::manual_seed(6);
    NsaInputs in = random_inputs(c, 2, s, at::kDouble);
    const NsaOutputs before = nsa_attention(in, c);
    for (const int64_t t : {int64_t{0}, int64_t{7}, int64_t{16}, s / 2, s - 2}) {
      for (const double value : values) {
        NsaInputs changed = in;
        for (auto& [name, tensor] : differentiable(changed)) {
          *tensor = tensor->clone();
          tensor->narrow(1, t + 1, s - t - 1).fill_(value);
        }
        const NsaOutputs after = nsa_attention(changed, c);
        for (const auto member :
             {&NsaOutputs::o, &NsaOutputs::o_cmp, &NsaOutputs::o_sel, &NsaOutputs::o_win,
              &NsaOutputs::lse_cmp, &NsaOutputs::lse_sel, &NsaOutputs::lse_win}) {
          ASSERT_TRUE(
              same_bits((before.*member).narrow(1, 0, t + 1), (after.*member).narrow(1, 0, t + 1)))
              << "S " << s << " t " << t << " value " << value;
        }
        ASSERT_TRUE(
            at::equal(before.block_idx.narrow(1, 0, t + 1), after.block_idx.narrow(1, 0, t + 1)));
      }
    }
  }
}

TEST(Layer, NonFiniteValueReachesExactlyTheRowsThatAttendIt) {
  const NsaConfig c = small();
  at::manual_seed(7);
  NsaInputs in = random_inputs(c, 1, 40, at::kDouble);
  in.v_win = in.v_win.clone();
  in.v_win[0][20][0][3].fill_(std::numeric_limits<double>::infinity());
  const at::Tensor bad = nsa_attention(in, c).o_win.isfinite().logical_not();
  // Heads 0 and 1 share KV head 0; the window of 12 keys holds token 20 for t = 20 .. 31.
  EXPECT_EQ(bad.sum().item<int64_t>(), 12 * 2);
  EXPECT_TRUE(bad.select(3, 3).narrow(2, 0, 2).narrow(1, 20, 12).all().item<bool>());
}

TEST(Layer, FullCoverageIsDenseCausalAttention) {
  NsaConfig c = small();
  c.window = 1000, c.top_n = 1000, c.rope = RopeMode::kNone;
  at::manual_seed(8);
  NsaInputs in = random_inputs(c, 2, 37, at::kDouble);
  in.k_sel = in.k_win, in.v_sel = in.v_win;
  const NsaOutputs out = nsa_attention(in, c);
  const auto heads_first = [](const at::Tensor& x, int64_t repeat) {
    return x.repeat_interleave(repeat, 2).transpose(1, 2);
  };
  const at::Tensor k = heads_first(in.k_win, 2), v = heads_first(in.v_win, 2);
  at::Tensor logits = at::matmul(in.q.transpose(1, 2), k.transpose(2, 3)) * c.default_scale();
  const at::Tensor future = at::ones({37, 37}, at::kBool).triu(1);
  const at::Tensor want =
      at::matmul(at::softmax(logits.masked_fill(future, -INFINITY), -1), v).transpose(1, 2);
  EXPECT_TRUE(at::allclose(out.o_win, want, 1e-12, 1e-12));
  EXPECT_TRUE(at::allclose(out.o_sel, want, 1e-12, 1e-12));
}

TEST(Layer, PermutedGroupsPermuteTheOutput) {
  const NsaConfig c = small();
  at::manual_seed(9);
  const NsaInputs in = random_inputs(c, 1, 50, at::kDouble);
  NsaInputs swapped = in;
  for (auto& [name, tensor] : differentiable(swapped)) {
    *tensor = tensor->unflatten(2, {2, tensor->size(2) / 2}).flip(2).flatten(2, 3);
  }
  const at::Tensor have = nsa_attention(swapped, c).o.unflatten(2, {2, 2}).flip(2).flatten(2, 3);
  EXPECT_TRUE(at::allclose(have, nsa_attention(in, c).o, 1e-13, 1e-13));
}

TEST(Layer, NonContiguousInputsGiveTheSameResult) {
  const NsaConfig c = small();
  at::manual_seed(10);
  const NsaInputs in = random_inputs(c, 2, 33, at::kDouble);
  NsaInputs strided = in;
  for (auto& [name, tensor] : differentiable(strided)) {
    *tensor = tensor->transpose(1, 2).contiguous().transpose(1, 2);
  }
  EXPECT_TRUE(same_bits(nsa_attention(strided, c).o, nsa_attention(in, c).o));
}

TEST(Layer, SameBitsTwiceForwardAndBackward) {
  const NsaConfig c = small();
  at::Tensor first;
  for (int round = 0; round < 2; ++round) {
    at::manual_seed(11);
    NsaInputs in = random_inputs(c, 2, 90);
    for (auto& [name, tensor] : differentiable(in)) tensor->requires_grad_(true);
    nsa_attention(in, c).o.sum().backward();
    std::vector<at::Tensor> grads;
    for (auto& [name, tensor] : differentiable(in)) grads.push_back(tensor->grad().flatten());
    const at::Tensor all = at::cat(grads);
    if (round == 1) {
      EXPECT_TRUE(at::equal(all, first));
    }
    first = all;
  }
}

TEST(Layer, LowPrecisionStaysNearDouble) {
  const NsaConfig c = small();
  at::manual_seed(12);
  const NsaInputs exact = random_inputs(c, 2, 70, at::kDouble);
  const std::pair<at::ScalarType, double> types[] = {
      {at::kFloat, 1e-5}, {at::kHalf, 1e-2}, {at::kBFloat16, 6e-2}};
  for (const auto& [dtype, tolerance] : types) {
    NsaInputs rounded = exact, widened = exact;
    for (auto& [name, tensor] : differentiable(rounded)) *tensor = tensor->to(dtype);
    widened = rounded;
    for (auto& [name, tensor] : differentiable(widened)) *tensor = tensor->to(at::kDouble);
    const NsaOutputs have = nsa_attention(rounded, c);
    EXPECT_EQ(have.o.scalar_type(), dtype);
    EXPECT_EQ(have.lse_win.scalar_type(), at::kFloat);
    EXPECT_EQ(have.scores.scalar_type(), at::kFloat);
    NsaOptions same_blocks;
    same_blocks.block_idx = have.block_idx;
    const at::Tensor want = nsa_attention(widened, c, same_blocks).o;
    EXPECT_LE((have.o.to(at::kDouble) - want).abs().max().item<double>(), tolerance) << dtype;
  }
}

TEST(Layer, EmptyBatchAndNoTokens) {
  const NsaConfig c = small();
  for (const auto& [batch, tokens] : {std::pair{0, 5}, std::pair{2, 0}, std::pair{0, 0}}) {
    NsaInputs in = random_inputs(c, batch, tokens);
    for (auto& [name, tensor] : differentiable(in)) tensor->requires_grad_(true);
    const NsaOutputs out = nsa_attention(in, c);
    EXPECT_EQ(out.o.sizes(), at::IntArrayRef({batch, tokens, 4, 6}));
    EXPECT_EQ(out.block_idx.sizes(), at::IntArrayRef({batch, tokens, 2, 4}));
    out.o.sum().backward();
  }
  NsaInputs packed = random_inputs(c, 1, 0, {}, /*packed=*/true);
  packed.cu_seqlens = at::zeros({1}, at::kInt);
  EXPECT_EQ(nsa_attention(packed, c).o.sizes(), at::IntArrayRef({0, 4, 6}));
  EXPECT_EQ(nsa_attention(packed, c).cu_cmp.numel(), 1);
}

TEST(Layer, RangesVersionsGiveTheSameBitsAndAreRecorded) {
  const NsaConfig c = small();
  at::manual_seed(13);
  const NsaInputs in = random_inputs(c, 2, 45);
  NsaOptions v1;
  v1.ranges = RangesVersion::kV1;
  const NsaOutputs a = nsa_attention(in, c), b = nsa_attention(in, c, v1);
  EXPECT_TRUE(at::equal(a.o, b.o));
  const auto backend = [](const NsaOutputs& out, const std::string& stage) {
    for (const RanBackend& ran : out.ran) {
      if (ran.stage == stage) return ran.backend + " " + std::to_string(ran.count);
    }
    return std::string("absent");
  };
  EXPECT_EQ(backend(a, "ranges"), "v2 1");
  EXPECT_EQ(backend(b, "ranges"), "v1 1");
  EXPECT_EQ(backend(a, "sel_attn"), "gather 1");
  const SwitchSet off = SwitchSet::from({}, {{"NSA_SEL_RANGES_V2", "0"}, {"NSA_NVTX", "0"}}, {});
  EXPECT_EQ(NsaOptions::from(off).ranges, RangesVersion::kV1);
  EXPECT_FALSE(NsaOptions::from(off).nvtx);
}

TEST(Layer, BadArgumentsAreNamed) {
  const NsaConfig c = small();
  const NsaInputs good = random_inputs(c, 2, 9);
  const auto with = [&](const std::function<void(NsaInputs&)>& change) {
    NsaInputs in = good;
    change(in);
    return error_of([&] { nsa_attention(in, c); });
  };
  EXPECT_THAT(with([](auto& in) { in.q = in.q[0]; }),
              HasSubstr("nsa::nsa_attention: q must be of rank 4 [B, S, Hq, dk], got shape "
                        "[9, 4, 8]"));
  EXPECT_THAT(with([](auto& in) { in.v_sel = in.k_sel; }),
              HasSubstr("v_sel must be [B, S, Hkv, dv] = [2, 9, 2, 6], got shape [2, 9, 2, 8]"));
  EXPECT_THAT(with([](auto& in) { in.k_win = in.k_win.to(at::kDouble); }),
              HasSubstr("k_win must be Float like q, got Double"));
  EXPECT_THAT(with([](auto& in) { in.k_win = in.k_win.to(at::kMeta); }),
              HasSubstr("k_win must be on cpu like q, got meta"));
  EXPECT_THAT(with([](auto& in) { in.q = in.q.to(at::kInt); }),
              HasSubstr("q must be float, double, half or bfloat16, got Int"));
  EXPECT_THAT(with([](auto& in) { in.gate_logits = in.gate_logits.narrow(2, 0, 3); }),
              HasSubstr("heads of gate_logits must be Hq = 4 or Hkv = 2, got 3"));
  EXPECT_THAT(with([](auto& in) { in.v_win = at::Tensor(); }),
              HasSubstr("v_win must be a tensor, got an undefined tensor"));
}

TEST(Layer, BadDocumentOffsetsAreNamed) {
  const NsaConfig c = small();
  const NsaInputs good = random_inputs(c, 1, 9, {}, /*packed=*/true);
  const auto with = [&](const std::vector<int32_t>& offsets) {
    NsaInputs in = good;
    in.cu_seqlens = at::tensor(offsets, at::kInt);
    return error_of([&] { nsa_attention(in, c); });
  };
  EXPECT_EQ(with({0, 4, 9}), "accepted");
  EXPECT_THAT(with({1, 9}), HasSubstr("nsa::nsa_attention: cu_seqlens[0] must be 0, got 1"));
  EXPECT_THAT(with({0, 5, 4, 9}),
              HasSubstr("cu_seqlens[2] must be at least cu_seqlens[1] = 5, got 4"));
  EXPECT_THAT(with({0, 4}), HasSubstr("cu_seqlens[1] must be T = 9, got 4"));
}

TEST(Layer, DoubleBackwardIsRefusedByName) {
  const NsaConfig c = small();
  NsaInputs in = random_inputs(c, 1, 20);
  in.q.requires_grad_(true);
  const at::Tensor o = nsa_attention(in, c).o;
  EXPECT_THAT(error_of([&] { o.sum().backward({}, true, /*create_graph=*/true); }),
              HasSubstr("double backward is not supported"));
}

TEST(Module, LearnsInEveryParameterAndKeepsTheTypeOfX) {
  NsaConfig c = small();
  c.phi = Phi::kMlp;
  at::manual_seed(14);
  NsaAttention module(20, c);
  const at::Tensor x = at::randn({2, 40, 20});
  module->forward(x).square().sum().backward();
  for (const auto& item : module->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_GT(item.value().grad().abs().sum().item<float>(), 0) << item.key();
  }
  EXPECT_EQ(module->forward(x.to(at::kBFloat16)).scalar_type(), at::kBFloat16);
  EXPECT_THAT(error_of([&] { module->forward(at::randn({2, 40, 21})); }),
              HasSubstr("nsa::NsaAttention: x must be [B, S, dim] = [any, any, 20]"));
}

TEST(Module, PackedRowsEqualBatchedRows) {
  at::manual_seed(15);
  NsaAttention module(20, small());
  const at::Tensor x = at::randn({2, 30, 20});
  const at::Tensor cu = at::tensor(std::vector<int32_t>{0, 30, 60}, at::kInt);
  const at::Tensor packed = module->forward(x.flatten(0, 1), cu);
  EXPECT_TRUE(at::allclose(packed, module->forward(x).flatten(0, 1), 1e-5, 1e-6));
}

/// One K and V, and gates of each query head by a matrix: what separate K and V with equal weights
/// compute.
TEST(Module, SharedKeysAreThreeEqualOnes) {
  const NsaConfig c = small();
  const ProjectionConfig linear{.gate = GateProjection::kLinear};
  at::manual_seed(17);
  NsaAttention separate(20, c, linear);
  NsaAttention shared(20, c, ProjectionConfig{.shared_kv = true, .gate = linear.gate});
  const at::NoGradGuard no_grad;
  auto from = separate->named_parameters(), to = shared->named_parameters();
  EXPECT_EQ(to.keys(), (std::vector<std::string>{"w_q", "w_k", "w_v", "w_g", "w_o"}));
  for (const char* name : {"w_q", "w_g", "w_o"}) to[name].copy_(from[name]);
  for (const char* branch : {"_cmp", "_sel", "_win"})
    for (const std::string name : {"w_k", "w_v"}) from[name + branch].copy_(to[name]);
  const at::Tensor x = at::randn({2, 40, 20});
  const auto want = separate->forward_detailed(x);
  EXPECT_EQ(want.attention.gates.sizes(), at::IntArrayRef({2, 40, c.num_heads, 3}));
  EXPECT_TRUE(at::allclose(shared->forward(x), want.y, 1e-5, 1e-6));
  const at::Tensor cu = at::tensor(std::vector<int32_t>{0, 40, 80}, at::kInt);
  EXPECT_TRUE(at::allclose(shared->forward(x.flatten(0, 1), cu), want.y.flatten(0, 1), 1e-5, 1e-6));
}

TEST(Module, GatesVaryAtInitialisation) {
  at::manual_seed(16);
  NsaConfig c = small();
  c.qk_head_dim = 64;
  NsaAttention module(128, c);
  const at::Tensor gates = module->forward_detailed(at::randn({1, 64, 128})).attention.gates;
  EXPECT_EQ(gates.sizes(), at::IntArrayRef({1, 64, 2, 3}));
  EXPECT_GT((gates - 1.0 / 3).abs().max().item<double>(), 1e-4);
  const at::Tensor w2 = module->named_parameters()["gate_w2"];
  EXPECT_NEAR(w2.std().item<double>(), 0.024, 0.006);
}

TEST(SplitProjection, IsTheColumnsAndTheirGates) {
  NsaConfig c = small();
  const GateWeights gate = make_gate_weights(c.qk_head_dim);
  const int64_t width = 4 * 8 + 3 * 2 * 8 + 3 * 2 * 6;
  const at::Tensor columns = at::randn({2, 5, width}).requires_grad_(true);
  const NsaInputs in = split_projection(columns, gate, c);
  EXPECT_TRUE(at::equal(in.q, columns.narrow(-1, 0, 32).unflatten(-1, {4, 8})));
  EXPECT_TRUE(at::equal(in.k_win, columns.narrow(-1, 64, 16).unflatten(-1, {2, 8})));
  EXPECT_TRUE(at::equal(in.v_cmp_src, columns.narrow(-1, 80, 12).unflatten(-1, {2, 6})));
  EXPECT_TRUE(at::equal(in.v_win, columns.narrow(-1, 104, 12).unflatten(-1, {2, 6})));
  EXPECT_TRUE(at::equal(in.gate_logits, gate_mlp(in.q, gate, 2)));
  in.k_sel.sum().backward();
  EXPECT_EQ(columns.grad().sum().item<float>(), 2 * 5 * 16);
}

TEST(SplitProjection, SharedKeysAndLinearGatesAreColumns) {
  const NsaConfig c = small();
  const ProjectionConfig linear{.shared_kv = true, .gate = GateProjection::kLinear};
  const int64_t width = 4 * 8 + 2 * 8 + 2 * 6 + 4 * 3;
  const at::Tensor columns = at::randn({2, 5, width});
  const NsaInputs in = split_projection(columns, {}, c, linear);
  EXPECT_TRUE(at::equal(in.k_sel, columns.narrow(-1, 32, 16).unflatten(-1, {2, 8})));
  EXPECT_TRUE(at::equal(in.v_win, columns.narrow(-1, 48, 12).unflatten(-1, {2, 6})));
  EXPECT_TRUE(at::equal(in.gate_logits, columns.narrow(-1, 60, 12).unflatten(-1, {4, 3})));
  EXPECT_TRUE(in.k_cmp_src.is_same(in.k_sel) && in.k_win.is_same(in.k_sel));
  EXPECT_TRUE(in.v_cmp_src.is_same(in.v_sel) && in.v_win.is_same(in.v_sel));
  const GateWeights gate = make_gate_weights(c.qk_head_dim);
  const NsaInputs mlp = split_projection(columns.narrow(-1, 0, 60), gate, c, {.shared_kv = true});
  EXPECT_TRUE(at::equal(mlp.v_sel, in.v_sel));
  EXPECT_TRUE(at::equal(mlp.gate_logits, gate_mlp(mlp.q, gate, 2)));
}

/// Where `selected` waits for other processes, a piece that had not chosen yet would wait with it.
TEST(AttendPieces, AllChooseBeforeTheFirstAsksForItsBlocks) {
  const NsaConfig c = small();
  const int64_t tokens = 2 * c.block_size, all = 2 * tokens;
  const NsaInputs in = random_inputs(c, 1, all, at::kDouble);
  const int64_t blocks = c.num_compressed(all);
  const auto record = c10::make_intrusive<RunRecord>(/*sdpa_audit=*/false, current_record());
  const RunRecordScope scope(record);
  std::vector<int64_t> chosen;  // pieces that had chosen at each call
  const auto piece = [&](int64_t first) {
    const int64_t end = first + tokens, seen = c.num_compressed(end);
    return AttendedKeys{.q_rot = in.q.narrow(1, first, tokens),
                        .k_cmp = in.k_cmp_src.narrow(1, 0, blocks).narrow(1, 0, seen),
                        .v_cmp = in.v_cmp_src.narrow(1, 0, blocks).narrow(1, 0, seen),
                        .k_win = in.k_win.narrow(1, 0, end),
                        .v_win = in.v_win.narrow(1, 0, end),
                        .selected =
                            [&, end](const at::Tensor&) {
                              int64_t count = 0;
                              for (const RanBackend& row : record->rows())
                                if (row.stage == "select") count += row.count;
                              chosen.push_back(count);
                              return std::pair(in.k_sel.narrow(1, 0, end),
                                               in.v_sel.narrow(1, 0, end));
                            },
                        .first_position = first};
  };
  const std::vector<at::Tensor> gates = in.gate_logits.split(tokens, 1);
  const auto outputs = attend_pieces({piece(0), piece(tokens)}, gates, c, {});
  EXPECT_EQ(chosen, (std::vector<int64_t>{2, 2}));
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_TRUE(at::equal(outputs[1].o, attend_branches(piece(tokens), gates[1], c, {}).o));
}

TEST(ColumnPlaces, AreThoseOfSlicesThatFillOneTensor) {
  const at::Tensor whole = at::zeros({2, 5, 20});
  const auto slice = [](const at::Tensor& from, int64_t first, int64_t heads, int64_t dim) {
    return from.narrow(-1, first, heads * dim).unflatten(-1, {heads, dim});
  };
  const at::Tensor a = slice(whole, 0, 2, 4), b = slice(whole, 8, 2, 4), c = slice(whole, 16, 1, 4);
  EXPECT_EQ(column_places({a, b, c}).width, 20);
  EXPECT_EQ(column_places({c, a, b}).first, (std::vector<int64_t>{16, 0, 8}));
  const std::vector<at::Tensor> none[] = {
      {a, b},                                              // a part is missing
      {a, b, b},                                           // one twice
      {a, b, slice(at::zeros({2, 5, 20}), 16, 1, 4)},      // of another tensor
      {a, b, slice(whole, 16, 1, 4).transpose(1, 2)},      // in another order
      {a, slice(whole, 6, 2, 4), slice(whole, 14, 1, 6)},  // overlapping
      {a, b, slice(whole.narrow(1, 0, 4), 16, 1, 4)}};     // fewer tokens
  for (size_t i = 0; i < std::size(none); ++i)
    EXPECT_EQ(column_places(none[i]).width, 0) << "case " << i;
}

}  // namespace
}  // namespace nsa
