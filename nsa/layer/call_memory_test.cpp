// The formula of a call's memory against what calls take, and calls that cannot fit.
#include "nsa/layer/call_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nsa/layer/random_inputs.h"
#include "nsa/nsa.h"
#include "nsa/ops/common/test_util.h"
#include "nsa/train/memory/tensor_memory.h"

namespace nsa {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

NsaConfig memory_config() {
  NsaConfig c;
  c.num_heads = 12, c.num_kv_heads = 2, c.qk_head_dim = c.v_head_dim = 64;
  c.block_size = 32, c.block_stride = 16, c.sel_block_size = 64, c.top_n = 16, c.window = 512;
  return c;
}

/// Peak of the tensors of one public call beyond its arguments, bytes.
double measured_bytes(const NsaConfig& c, int64_t batch, int64_t tokens, at::ScalarType type,
                      bool gradient) {
  NsaInputs in = random_inputs(c, batch, tokens, type);
  at::Tensor q = in.q, k = in.k_sel, v = in.v_sel, gates = in.gate_logits;
  in = {};
  for (at::Tensor* x : {&q, &k, &v, &gates}) x->requires_grad_(gradient);
  Config config;
  static_cast<NsaConfig&>(config) = c;
  train::reset_tensor_peak(at::kCPU);
  const double before = train::tensor_peak_mib(at::kCPU);
  const at::Tensor o = attention(q, k, v, gates, config);
  if (gradient) o.backward(at::ones_like(o));
  return (train::tensor_peak_mib(at::kCPU) - before) * (1 << 20);
}

TEST(CallMemory, IsALowerBoundNearTheMeasuredPeak) {
  train::watch_tensor_memory(at::kCPU, 0);
  NsaConfig other = memory_config();
  other.num_heads = 16, other.qk_head_dim = 96, other.top_n = 4;
  for (NsaConfig c : {memory_config(), other}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      for (const bool gradient : {false, true}) {
        for (const int64_t batch : {1, 3}) {
          c.rope = batch == 1 ? RopeMode::kNone : RopeMode::kBeforePool;
          const int64_t tokens = 1100;
          const double formula =
              cpu_call_bytes(c, {.batch = batch,
                                 .tokens = tokens,
                                 .value_bytes = static_cast<int64_t>(c10::elementSize(type)),
                                 .gradient = gradient});
          const double share = formula / measured_bytes(c, batch, tokens, type, gradient);
          EXPECT_TRUE(share > 0.7 && share <= 1.0)
              << c10::toString(type) << " heads " << c.num_heads << " gradient " << gradient
              << " batch " << batch << ": " << share;
        }
      }
    }
  }
}

/// Arguments of any size without memory of their own.
at::Tensor stand_in(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
  return at::zeros({1}, type).expand(sizes);
}

struct LargeCall {
  explicit LargeCall(std::vector<int64_t> rows, at::ScalarType type = at::kFloat) {
    const auto with = [&](int64_t heads, int64_t dim) {
      std::vector<int64_t> sizes = rows;
      sizes.insert(sizes.end(), {heads, dim});
      return stand_in(sizes, type);
    };
    q = with(12, 64), k = with(2, 64), v = with(2, 64), gates = with(2, 3);
    static_cast<NsaConfig&>(config) = memory_config();
  }
  at::Tensor q, k, v, gates;
  Config config;
};

TEST(CallMemory, ACallThatCannotFitIsRefusedByName) {
  const LargeCall call({1, int64_t{1} << 32});
  EXPECT_THAT(error_of([&] { attention(call.q, call.k, call.v, call.gates, call.config); }),
              AllOf(HasSubstr("nsa::attention: q of shape [1, 4294967296, 12, 64] in Float must "
                              "make a call that fits into memory, but it takes "),
                    HasSubstr(" GiB beyond the inputs and "),
                    HasSubstr(" GiB are available; use shorter or fewer sequences a call, or "
                              "bf16")));
  const LargeCall half({1, int64_t{1} << 32}, at::kBFloat16);
  half.q.requires_grad_(true);
  EXPECT_THAT(error_of([&] { attention(half.q, half.k, half.v, half.gates, half.config); }),
              AllOf(HasSubstr("but forward and backward take "), HasSubstr("sequences a call")));
  EXPECT_THROW(attention(call.q, call.k, call.v, call.gates, call.config), c10::OutOfMemoryError);
}

TEST(CallMemory, PackedDocumentsAndPlainOperatorsAreRefusedToo) {
  const LargeCall plain({1 << 20, 1 << 12});
  Options options;
  options.backend = Backend::kPlain;
  EXPECT_THAT(
      error_of([&] { attention(plain.q, plain.k, plain.v, plain.gates, plain.config, options); }),
      HasSubstr("must make a call that fits into memory"));
  const int64_t tokens = (int64_t{1} << 31) - 1;
  const LargeCall packed({tokens});
  EXPECT_THAT(error_of([&] {
                attention_varlen(packed.q, packed.k, packed.v, packed.gates,
                                 at::tensor({int64_t{0}, tokens}, at::kInt), packed.config);
              }),
              HasSubstr("q of shape [2147483647, 12, 64]"));
}

TEST(CallMemory, OfALayerCallIsRefused) {
  const LargeCall call({1, int64_t{1} << 32});
  NsaInputs in{call.q, call.k, call.v, call.k, call.v, call.k, call.v, call.gates, {}, {}, {}, {}};
  NsaOptions options;
  options.cmp = options.win = BranchBackend::kCpu;
  options.sel = SelBackend::kCpu;
  options.keep_scores = false;
  EXPECT_THAT(error_of([&] { nsa_attention(in, call.config, options); }),
              HasSubstr("must make a call that fits into memory"));
}

}  // namespace
}  // namespace nsa
