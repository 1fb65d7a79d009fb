// Every backend of the selected branch against the oracle, and errors and records of a call.
#include "nsa/ops/selected/sel_attn.h"

#include <ATen/Parallel.h>

#include <cmath>
#include <limits>

#include "nsa/diagnostics/run_record.h"
#include "nsa/ops/common/oracle_util.h"
#include "nsa/ops/common/test_util.h"
#include "nsa/reference/branches/sel_attention.h"

namespace nsa {
namespace {

using ::testing::HasSubstr;
constexpr double kInf = std::numeric_limits<double>::infinity();

struct Inputs {
  at::Tensor q, k, v, ranges;
};

at::Tensor draw(at::IntArrayRef shape) { return at::randn(shape, at::kDouble); }

/// Intervals of any kind: empty, reversed, overlapping, unordered, negative, beyond t and S.
Inputs hostile(int64_t batch, int64_t s, int64_t kv, int64_t group, int64_t width, int64_t dk = 6,
               int64_t dv = 5) {
  return {draw({batch, s, kv * group, dk}), draw({batch, s, kv, dk}), draw({batch, s, kv, dv}),
          at::randint(-4, s + 6, {batch, s, kv, width, 2}, at::kInt)};
}

Inputs with_grad(const Inputs& in) {
  return {in.q.detach().clone().requires_grad_(true), in.k.detach().clone().requires_grad_(true),
          in.v.detach().clone().requires_grad_(true), in.ranges};
}

at::Tensor finite(const at::Tensor& lse) {
  return at::where(lse.isfinite(), lse, at::zeros_like(lse));
}

/// {out, lse, dq, dk, dv} for weights of both outputs.
std::vector<at::Tensor> run(const Inputs& inputs, const SelAttnOptions& options,
                            bool through_lse = true, int64_t first_position = 0) {
  const Inputs in = with_grad(inputs);
  const auto [out, lse] = sel_attn(in.q, in.k, in.v, in.ranges, first_position, options);
  at::manual_seed(77);
  at::Tensor sum = (out * at::randn(out.sizes(), out.options())).sum();
  const at::Tensor weight = at::randn(lse.sizes(), lse.options());
  if (through_lse) sum = sum + (finite(lse) * weight).sum();
  sum.backward();
  return {out.detach(), lse.detach(), in.q.grad(), in.k.grad(), in.v.grad()};
}

class Backend : public ::testing::TestWithParam<SelBackend> {
 protected:
  void SetUp() override { at::manual_seed(3); }
  SelAttnOptions options() const { return {GetParam()}; }
};

TEST_P(Backend, AgreesWithTheOracleOnHostileRanges) {
  struct Shape {
    int64_t batch, s, kv, group, width;
  };
  for (const Shape& c : {Shape{2, 20, 2, 2, 3}, Shape{1, 33, 1, 5, 6}, Shape{3, 1, 2, 1, 2},
                         Shape{1, 9, 3, 1, 1}, Shape{2, 7, 1, 2, 0}}) {
    const Inputs in = with_grad(hostile(c.batch, c.s, c.kv, c.group, c.width));
    // Sizes and scales vary together; without a value it is 1 / sqrt(dk).
    const auto scale = c.batch == 2 ? std::optional(0.9) : std::nullopt;
    const auto [out, lse] = sel_attn(in.q, in.k, in.v, in.ranges, 0, options(), scale);
    const auto q = ref_of<double>(in.q), k = ref_of<double>(in.k), v = ref_of<double>(in.v);
    const auto ranges = ref_of<int32_t>(in.ranges);
    const reference::Attention want = reference::sel_attention(q, k, v, ranges, scale);
    expect_near(out.detach(), to_aten(want.o, at::kDouble), 1e-13);
    expect_near(lse.detach(), to_aten(want.lse, at::kDouble), 1e-13);
    const at::Tensor d_o = draw(out.sizes());
    out.backward(d_o);
    const reference::AttentionGradients grads =
        reference::sel_attention_backward(q, k, v, ranges, ref_of<double>(d_o), scale);
    expect_near(in.q.grad(), to_aten(grads.q, at::kDouble), 1e-13);
    expect_near(in.k.grad(), to_aten(grads.k, at::kDouble), 1e-13);
    expect_near(in.v.grad(), to_aten(grads.v, at::kDouble), 1e-13);
  }
}

TEST_P(Backend, GradientsOfOutputAndLseByCentralDifferences) {
  Inputs in = hostile(2, 5, 2, 2, 2, 2, 3);
  in.ranges.select(3, 0).copy_(ints({0, 1}, {2}));  // no empty row: lse has a derivative
  expect_gradients(
      [&](const std::vector<at::Tensor>& x) -> std::vector<at::Tensor> {
        const auto [out, lse] = sel_attn(x[0], x[1], x[2], in.ranges, 0, options());
        return {out, lse};
      },
      {in.q, in.k, in.v});
}

TEST_P(Backend, UnionOfOverlappingUnorderedAndBeyond) {
  // Row t = 3: intervals [2,9) [0,1) [2,3) -> keys 0, 2, 3. Row t = 0: none; t = 1: an empty one.
  const at::Tensor zero = doubles({0, 0, 0, 0}, {1, 4, 1, 1});
  const at::Tensor v = doubles({1, 10, 100, 1000}, {1, 4, 1, 1});
  at::Tensor ranges = at::zeros({1, 4, 1, 3, 2}, at::kInt);
  ranges[0][1][0].copy_(ints({1, 1, 3, 2, 0, 0}, {3, 2}));
  ranges[0][2][0].copy_(ints({-5, 1, 1, 2, 7, 9}, {3, 2}));
  ranges[0][3][0].copy_(ints({2, 9, 0, 1, 2, 3}, {3, 2}));
  const auto [out, lse] = sel_attn(zero, zero, v, ranges, 0, options());
  expect_near(out.flatten(), doubles({0, 0, 5.5, 1101 / 3.0}, {4}), 1e-12);
  expect_near(lse.flatten(), doubles({-kInf, -kInf, std::log(2.0), std::log(3.0)}, {4}));
}

TEST_P(Backend, EmptyRowsAreExactlyZero) {
  for (const int64_t width : {0, 2}) {
    Inputs in = hostile(1, 6, 1, 2, width);
    in.ranges.zero_();
    const std::vector<at::Tensor> r = run(in, options());
    for (const size_t i : {0, 2, 3, 4}) EXPECT_EQ(r[i].abs().max().item<double>(), 0) << i;
    EXPECT_TRUE(r[1].eq(-kInf).all().item<bool>());
  }
}

TEST_P(Backend, NothingToComputeGivesEmptyTensors) {
  for (const auto& [batch, s] : {std::pair{0, 4}, std::pair{2, 0}}) {
    const std::vector<at::Tensor> r = run(hostile(batch, s, 2, 2, 3), options());
    EXPECT_EQ(r[0].sizes(), at::IntArrayRef({batch, s, 4, 5}));
    EXPECT_EQ(r[3].sizes(), at::IntArrayRef({batch, s, 2, 6}));
  }
}

TEST_P(Backend, SameBitsTwice) {
  Inputs in = hostile(2, 150, 2, 3, 4, 16, 16);
  for (at::Tensor* x : {&in.q, &in.k, &in.v}) *x = x->to(at::kFloat);
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  const std::vector<at::Tensor> first = run(in, options()), second = run(in, options());
  at::set_num_threads(threads);
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i], second[i])) << i;
}

TEST_P(Backend, ManyBatchesEqualOneDenseComputation) {
  const Inputs in = hostile(1, 400, 2, 2, 3, 64, 48);
  const std::vector<at::Tensor> have = run(in, options()), want = run(in, {SelBackend::kMasked});
  for (size_t i = 0; i < have.size(); ++i) expect_near(have[i], want[i], 1e-12);
}

TEST_P(Backend, FirstPositionShiftsTheRows) {
  const Inputs in = hostile(2, 23, 2, 2, 3);
  const auto [all, all_lse] = sel_attn(in.q, in.k, in.v, in.ranges, 0, options());
  const auto [tail, tail_lse] =
      sel_attn(in.q.narrow(1, 19, 4), in.k, in.v, in.ranges.narrow(1, 19, 4), 19, options());
  expect_near(tail, all.narrow(1, 19, 4));
  expect_near(tail_lse, all_lse.narrow(1, 19, 4));
}

TEST_P(Backend, ATokenOutsideTheRowHasNoInfluence) {
  Inputs in = hostile(1, 12, 1, 2, 1);
  in.ranges.select(-1, 0).fill_(2);
  in.ranges.select(-1, 1).fill_(7);
  const std::vector<at::Tensor> want = run(in, options());
  for (const double value : {std::nan(""), kInf, -kInf}) {
    Inputs bad = {in.q, in.k.clone(), in.v.clone(), in.ranges};
    for (at::Tensor* x : {&bad.k, &bad.v}) {
      x->narrow(1, 0, 2).fill_(value);
      x->narrow(1, 7, 5).fill_(value);
    }
    const std::vector<at::Tensor> have = run(bad, options());
    for (size_t i = 0; i < have.size(); ++i) EXPECT_TRUE(at::equal(have[i], want[i])) << i;
  }
}

TEST_P(Backend, ANonFiniteTokenReachesTheRowsThatAttendIt) {
  Inputs in = hostile(1, 8, 1, 2, 1);
  in.ranges.select(-1, 0).fill_(0);
  in.ranges.select(-1, 1).fill_(4);
  in.v[0][2][0][1] = kInf;
  const auto out = sel_attn(in.q, in.k, in.v, in.ranges, 0, options()).first;
  const at::Tensor bad = out.isfinite().logical_not();
  EXPECT_EQ(bad.sum().item<int64_t>(), 6 * 2);  // t = 2 .. 7, one channel, two heads
  EXPECT_TRUE(bad.select(3, 1).narrow(1, 2, 6).all().item<bool>());
}

TEST_P(Backend, NonContiguousAndExpandedInputs) {
  const Inputs in = hostile(2, 10, 2, 2, 3);
  const Inputs strided{in.q.transpose(1, 3).contiguous().transpose(1, 3),
                       in.k.narrow(1, 0, 1).expand({2, 10, 2, 6}),
                       in.v.transpose(1, 2).contiguous().transpose(1, 2),
                       in.ranges.narrow(2, 0, 1).expand({2, 10, 2, 3, 2})};
  const Inputs dense{in.q, strided.k.contiguous(), in.v, strided.ranges.contiguous()};
  const auto have = sel_attn(strided.q, strided.k, strided.v, strided.ranges, 0, options());
  const auto want = sel_attn(dense.q, dense.k, dense.v, dense.ranges, 0, options());
  EXPECT_TRUE(at::equal(have.first, want.first));
  EXPECT_TRUE(at::equal(have.second, want.second));
}

TEST_P(Backend, EveryTypeStaysNearDouble) {
  const Inputs in = hostile(2, 30, 2, 3, 3);
  const std::pair<at::ScalarType, double> types[] = {
      {at::kFloat, 2e-5}, {at::kHalf, 2e-2}, {at::kBFloat16, 1e-1}};
  for (const auto& [dtype, tolerance] : types) {
    const Inputs low{in.q.to(dtype), in.k.to(dtype), in.v.to(dtype), in.ranges};
    const Inputs exact{low.q.to(at::kDouble), low.k.to(at::kDouble), low.v.to(at::kDouble),
                       in.ranges};
    const auto [out, lse] = sel_attn(low.q, low.k, low.v, in.ranges, 0, options());
    EXPECT_EQ(out.scalar_type(), dtype);
    EXPECT_EQ(lse.scalar_type(), at::kFloat);
    const auto [want, want_lse] = sel_attn(exact.q, exact.k, exact.v, in.ranges, 0, options());
    expect_near(out.to(at::kDouble), want, tolerance);
    expect_near(lse.to(at::kDouble), want_lse, 2e-5);
    const Inputs grad = with_grad(low);
    sel_attn(grad.q, grad.k, grad.v, in.ranges, 0, options()).first.sum().backward();
    const Inputs grad_exact = with_grad(exact);
    sel_attn(grad_exact.q, grad_exact.k, grad_exact.v, in.ranges, 0, options())
        .first.sum()
        .backward();
    expect_near(grad.v.grad().to(at::kDouble), grad_exact.v.grad(), tolerance * 8);
  }
}

TEST_P(Backend, ReportsWhatRan) {
  const auto record = c10::make_intrusive<RunRecord>();
  const RunRecordScope scope(record);
  const Inputs in = hostile(1, 4, 1, 1, 1);
  SelAttnOptions strict = options();
  strict.strict = true;
  for (int i = 0; i < 2; ++i) sel_attn(in.q, in.k, in.v, in.ranges, 0, strict);
  ASSERT_EQ(record->rows().size(), 1u);
  const RanBackend row = record->rows()[0];
  EXPECT_EQ(row.stage, "sel_attn");
  EXPECT_EQ(row.requested, to_string(GetParam()));
  EXPECT_EQ(row.backend, to_string(GetParam()));
  EXPECT_EQ(row.reason, "");
  EXPECT_EQ(row.count, 2);
}

INSTANTIATE_TEST_SUITE_P(SelAttn, Backend,
                         ::testing::Values(SelBackend::kGather, SelBackend::kPacked,
                                           SelBackend::kVarlen, SelBackend::kMasked),
                         [](const auto& param) { return to_string(param.param); });

/// The only row of the record of one call.
RanBackend row_of(const std::function<void()>& call) {
  const auto record = c10::make_intrusive<RunRecord>();
  const RunRecordScope scope(record);
  call();
  return record->rows().at(0);
}

TEST(Packed, WorkspaceGivesTheBitsOfTheSafeVariant) {
  at::manual_seed(5);
  const Inputs in = hostile(2, 200, 2, 2, 3, 64, 64);
  const SelAttnOptions workspace{SelBackend::kPacked, /*safe_pack=*/false};
  std::pair<at::Tensor, at::Tensor> have;
  const RanBackend row =
      row_of([&] { have = sel_attn(in.q, in.k, in.v, in.ranges, 0, workspace); });
  EXPECT_EQ(row.detail, "workspace");
  const auto want = sel_attn(in.q, in.k, in.v, in.ranges, 0, {SelBackend::kPacked});
  EXPECT_TRUE(at::equal(have.first, want.first));
  EXPECT_TRUE(at::equal(have.second, want.second));
}

TEST(Packed, UnderAutogradTheSafeVariantRunsAndTheGraphIsWhole) {
  at::manual_seed(6);
  const Inputs in = hostile(1, 30, 2, 2, 3);
  const SelAttnOptions workspace{SelBackend::kPacked, /*safe_pack=*/false};
  std::vector<at::Tensor> have;
  const RanBackend row = row_of([&] { have = run(in, workspace); });
  EXPECT_EQ(row.detail, "safe");
  EXPECT_EQ(row.reason, "the workspace variant has no gradient");
  const std::vector<at::Tensor> want = run(in, {SelBackend::kMasked});
  for (size_t i = 0; i < have.size(); ++i) expect_near(have[i], want[i], 1e-13);
  // Two calls before the first backward pass: nothing of the first is overwritten by the second.
  const Inputs a = with_grad(in), b = with_grad(hostile(1, 30, 2, 2, 3));
  const at::Tensor first = sel_attn(a.q, a.k, a.v, a.ranges, 0, workspace).first;
  const at::Tensor kept = first.detach().clone();
  sel_attn(b.q, b.k, b.v, b.ranges, 0, workspace).first.sum().backward();
  EXPECT_TRUE(at::equal(first, kept));
  first.sum().backward();
  const Inputs c = with_grad(in);
  sel_attn(c.q, c.k, c.v, c.ranges, 0, {SelBackend::kMasked}).first.sum().backward();
  expect_near(a.k.grad(), c.k.grad(), 1e-13);
}

TEST(Packed, StrictRefusesTheWorkspaceUnderAutograd) {
  const Inputs in = with_grad(hostile(1, 4, 1, 1, 1));
  const SelAttnOptions strict{SelBackend::kPacked, /*safe_pack=*/false, /*strict=*/true};
  EXPECT_THAT(error_of([&] { sel_attn(in.q, in.k, in.v, in.ranges, 0, strict); }),
              HasSubstr("nsa::sel_attn: backend must be packed, got packed: the workspace variant "
                        "has no gradient"));
}

TEST(Varlen, ReportsWhyItIsNotTheLibrary) {
  const Inputs in = hostile(1, 4, 1, 1, 1);
  const RanBackend row =
      row_of([&] { sel_attn(in.q, in.k, in.v, in.ranges, 0, {SelBackend::kVarlen}); });
  EXPECT_EQ(row.detail, "plain: it needs CUDA tensors");
}

TEST(SelAttn, LongSequencesAttendOnlySelectedKeys) {
  at::manual_seed(4);
  const int64_t s = 60000;
  const at::Tensor q = draw({1, 3, 2, 4}), k = draw({1, s, 1, 4}), v = draw({1, s, 1, 4});
  const at::Tensor ranges = ints({0, 9, 59000, 59098}, {1, 1, 1, 2, 2}).expand({1, 3, 1, 2, 2});
  const auto chosen = [](const at::Tensor& x) {
    return at::cat({x.narrow(1, 0, 9), x.narrow(1, 59000, 98)}, 1).squeeze(2);  // [1, 107, 4]
  };
  const at::Tensor p =
      at::softmax(at::matmul(q.transpose(1, 2), chosen(k).transpose(1, 2)) / 2, -1);
  for (const SelBackend backend : {SelBackend::kGather, SelBackend::kPacked, SelBackend::kVarlen}) {
    const at::Tensor out = sel_attn(q, k, v, ranges, s - 3, {backend}).first;
    expect_near(out.transpose(1, 2), at::matmul(p, chosen(v)), 1e-13);
  }
}

TEST(SelAttn, BadArgumentsAreNamed) {
  const at::Tensor q = at::randn({2, 6, 4, 3}), k = at::randn({2, 6, 2, 3});
  const at::Tensor ranges = at::zeros({2, 6, 2, 1, 2}, at::kInt);
  const auto error = [&](const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in,
                         const at::Tensor& ranges_in, int64_t first_position) {
    return error_of([&] { sel_attn(q_in, k_in, v_in, ranges_in, first_position); });
  };
  EXPECT_EQ(error(q, k, k, ranges, 0), "accepted");
  EXPECT_THAT(error(q, k, k, ranges.to(at::kLong), 0),
              HasSubstr("nsa::sel_attn: ranges must be Int, got Long"));
  EXPECT_THAT(error(q, k, k, ranges.narrow(1, 0, 5), 0),
              HasSubstr("ranges must be [B, S, Hkv, K, 2] = [2, 6, 2, any, 2], got shape "
                        "[2, 5, 2, 1, 2]"));
  EXPECT_THAT(error(q, k, k, ranges.to(at::kMeta), 0),
              HasSubstr("ranges must be on cpu like q, got meta"));
  EXPECT_THAT(error(q, k, k, ranges, 1), HasSubstr("nsa::sel_attn: N must be at least 7, got 6"));
  EXPECT_THAT(error(q, k, k, ranges, -1),
              HasSubstr("nsa::sel_attn: first_position must be at least 0, got -1"));
  EXPECT_THAT(error(q[0], k, k, ranges, 0),
              HasSubstr("nsa::sel_attn: q must be of rank 4 [B, S, Hq, dk], got shape [6, 4, 3]"));
  EXPECT_THAT(error(q, k.to(at::kHalf), k, ranges, 0),
              HasSubstr("nsa::sel_attn: k must be Float like q, got Half"));
  EXPECT_THAT(error(q, k, at::Tensor(), ranges, 0),
              HasSubstr("nsa::sel_attn: v must be a tensor, got an undefined tensor"));
}

}  // namespace
}  // namespace nsa
