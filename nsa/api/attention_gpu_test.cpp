// nsa::attention on a GPU: the kernels run by default, their results are those of the layer call
// bit for bit and agree with fp64, whatever strides, stream, mode or gradients; part of
// backends_gpu_test.
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "nsa/api/attention_call.h"
#include "nsa/layer/nsa_attention.h"
#include "nsa/nsa.h"
#include "nsa/tests/backends_gpu_testing.h"

namespace nsa {
namespace {

using ::testing::IsEmpty;
using torch::autograd::variable_list;

Config call_config() {
  Config config;
  config.num_heads = 8;
  config.qk_head_dim = config.v_head_dim = 64;
  config.top_n = 6;
  config.window = 100;
  return config;
}

/// q, k, v and gates as leaves; gates logits of one type with the rest.
variable_list call_tensors(at::IntArrayRef rows, at::ScalarType type = at::kBFloat16) {
  const Config config = call_config();
  at::manual_seed(21);
  variable_list made;
  for (const auto& [heads, dim] : {std::pair{config.num_heads, config.qk_head_dim},
                                   {config.num_kv_heads, config.qk_head_dim},
                                   {config.num_kv_heads, config.v_head_dim},
                                   {config.num_heads, int64_t{3}}}) {
    std::vector<int64_t> sizes = rows.vec();
    sizes.insert(sizes.end(), {heads, dim});
    made.push_back(at::randn(sizes, at::kDouble).to(at::kCUDA, type).detach().requires_grad_(true));
  }
  return made;
}

NsaInputs as_layer_inputs(const variable_list& x) {
  NsaInputs in;
  in.q = x[0];
  in.k_cmp_src = in.k_sel = in.k_win = x[1];
  in.v_cmp_src = in.v_sel = in.v_win = x[2];
  in.gate_logits = x[3];
  return in;
}

at::Tensor call(const variable_list& x, const Options& options = {}) {
  return attention(x[0], x[1], x[2], x[3], call_config(), options);
}

variable_list call_gradients(const at::Tensor& o, const variable_list& inputs) {
  at::manual_seed(22);
  const at::Tensor d_o = at::randn(o.sizes(), at::kDouble).to(o.device(), o.scalar_type());
  return torch::autograd::grad({o}, inputs, {d_o});
}

void expect_same_bits(const variable_list& have, const variable_list& want) {
  ASSERT_EQ(have.size(), want.size());
  for (size_t i = 0; i < have.size(); ++i)
    EXPECT_TRUE(have[i].equal(want[i]))
        << kCallTensors[i] << ", off by " << (have[i] - want[i]).abs().max().item<double>();
}

void expect_branches_fused(const std::vector<RanBackend>& rows) {
  std::vector<std::string> fused;
  for (const RanBackend& row : rows)
    if (row.backend == "fused") fused.push_back(row.stage);
  for (const char* branch : {"cmp_attn", "sel_attn", "win_attn"})
    EXPECT_THAT(fused, testing::Contains(branch));
}

TEST(AttentionOnCuda, RunsTheKernelsByDefaultWithTheBitsOfTheLayerCall) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const variable_list x = call_tensors({2, 300}, type);
    EXPECT_THAT(why_not_fused(x[0], x[1], x[2], x[3], call_config()), IsEmpty());
    const auto record = c10::make_intrusive<RunRecord>();
    const RunRecordScope scope(record);
    const at::Tensor o = call(x);
    expect_branches_fused(record->rows());
    NsaOptions options = layer_options(Backend::kFused, true, true);
    options.keep_branches = false;
    const at::Tensor want = nsa_attention(as_layer_inputs(x), call_config(), options).o;
    EXPECT_TRUE(o.equal(want));
    expect_same_bits(call_gradients(o, x), call_gradients(want, x));
  }
}

TEST(AttentionOnCuda, AgreesWithFp64OnTheSelectedBlocks) {
  const std::pair<at::ScalarType, double> bounds[] = {
      {at::kDouble, 1e-11}, {at::kFloat, 1e-4}, {at::kHalf, 5e-3}, {at::kBFloat16, 4e-2}};
  for (const auto& [type, bound] : bounds) {
    const variable_list x = call_tensors({2, 300}, type);
    const at::Tensor ids =
        nsa_attention(as_layer_inputs(x), call_config(), layer_options(Backend::kAuto, false, true))
            .block_idx;
    Options given;
    given.block_idx = ids;
    variable_list exact;
    for (const at::Tensor& t : x)
      exact.push_back(t.detach().to(at::kCPU, at::kDouble).requires_grad_(true));
    const at::Tensor o = call(x, given);
    given.block_idx = ids.cpu();
    const at::Tensor want = call(exact, given);
    EXPECT_LE(distance(o.detach().to(at::kCPU, at::kDouble), want.detach()), bound) << type;
    at::manual_seed(22);
    const at::Tensor d_o = at::randn(o.sizes(), at::kDouble).to(type);
    const variable_list have = torch::autograd::grad({o}, x, {d_o.to(at::kCUDA)});
    const variable_list ideal = torch::autograd::grad({want}, exact, {d_o.to(at::kDouble)});
    for (size_t i = 0; i < have.size(); ++i)
      EXPECT_LE(distance(have[i].to(at::kCPU, at::kDouble), ideal[i]), bound)
          << type << " " << kCallTensors[i];
  }
}

/// In batches, as the layer computes them. All at once: packed_gpu_test.
TEST(AttentionOnCuda, PackedDocumentsInBatchesHaveTheBitsOfTheLayerCall) {
  const variable_list x = call_tensors({500});
  const at::Tensor offsets = at::tensor({0, 3, 3, 210, 500}, at::kInt).to(at::kCUDA);
  Options options;
  options.backend = Backend::kPlain;
  const at::Tensor o = attention_varlen(x[0], x[1], x[2], x[3], offsets, call_config(), options);
  NsaInputs in = as_layer_inputs(x);
  in.cu_seqlens = offsets;
  const at::Tensor want =
      nsa_attention(in, call_config(), layer_options(Backend::kPlain, false, true)).o;
  EXPECT_TRUE(o.equal(want));
  expect_same_bits(call_gradients(o, x), call_gradients(want, x));
}

/// The values of x one element into a buffer: no address is a multiple of 16 bytes.
at::Tensor shifted(const at::Tensor& x) {
  const at::Tensor buffer = at::empty({x.numel() + 1}, x.options());
  const at::Tensor view = buffer.narrow(0, 1, x.numel()).view(x.sizes());
  view.copy_(x.detach());
  return view.detach().requires_grad_(true);
}

TEST(AttentionOnCuda, ViewsAtOddOffsetsAndOtherStrides) {
  const variable_list x = call_tensors({2, 150});
  const at::Tensor want = call(x);
  const variable_list wanted = call_gradients(want, x);
  variable_list odd, turned, strided;
  for (const at::Tensor& t : x) {
    odd.push_back(shifted(t));
    turned.push_back(t.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_(true));
    strided.push_back(at::stack({t.detach(), t.detach()}, -1).select(-1, 1).requires_grad_(true));
  }
  for (const variable_list& view : {odd, turned, strided}) {
    const at::Tensor o = call(view);
    EXPECT_TRUE(o.equal(want));
    expect_same_bits(call_gradients(o, view), wanted);
  }
}

TEST(AttentionOnCuda, RunsOnTheCurrentStream) {
  const variable_list x = call_tensors({1, 200});
  const at::Tensor want = call(x);
  const variable_list wanted = call_gradients(want, x);
  at::cuda::getCurrentCUDAStream().synchronize();
  const c10::cuda::CUDAStream other = at::cuda::getStreamFromPool();
  at::Tensor o;
  {
    const c10::cuda::CUDAStreamGuard guard(other);
    o = call(x);
    expect_same_bits(call_gradients(o, x), wanted);
  }
  EXPECT_TRUE(o.equal(want));
}

TEST(AttentionOnCuda, ShortSequencesAndEmptyBatches) {
  for (const int64_t tokens : {0, 1, 2, 3, 31, 33}) {
    const variable_list x = call_tensors({2, tokens});
    const at::Tensor o = call(x);
    EXPECT_EQ(o.sizes(), (std::vector<int64_t>{2, tokens, 8, 64}));
    EXPECT_TRUE(o.isfinite().all().item<bool>()) << tokens;
    for (const at::Tensor& g : call_gradients(o, x))
      EXPECT_TRUE(g.isfinite().all().item<bool>()) << tokens;
  }
  EXPECT_EQ(call(call_tensors({0, 40})).numel(), 0);
}

TEST(AttentionOnCuda, InferenceModeAndSomeGradientsAlone) {
  variable_list x = call_tensors({1, 150});
  const at::Tensor want = call(x);
  const at::Tensor d_v = call_gradients(want, {x[2]})[0];
  {
    const c10::InferenceMode inference;
    EXPECT_TRUE(call(x).equal(want));
  }
  for (const size_t i : {0, 1, 3}) x[i] = x[i].detach();
  EXPECT_TRUE(call_gradients(call(x), {x[2]})[0].equal(d_v));
}

TEST(AttentionOnCuda, GraphOfATrainingStepComputesFromNewInputs) {
  const variable_list x = call_tensors({1, 200});
  const at::Tensor d_o = at::ones({1, 200, 8, 64}, x[0].options());
  const auto step = [&] {
    variable_list out{call(x)};
    for (const at::Tensor& g : torch::autograd::grad({out[0]}, x, {d_o})) out.push_back(g);
    out[0] = out[0].detach();
    return out;
  };
  const c10::cuda::CUDAStreamGuard guard(at::cuda::getStreamFromPool());
  step();
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  const variable_list replayed = step();
  graph.capture_end();
  {
    const at::NoGradGuard no_graph;
    at::manual_seed(23);
    for (const at::Tensor& t : x)
      t.copy_(at::randn(t.sizes(), at::kDouble).to(t.device(), t.scalar_type()));
  }
  const variable_list eager = step();
  graph.replay();
  expect_same_bits(replayed, eager);
}

}  // namespace
}  // namespace nsa
