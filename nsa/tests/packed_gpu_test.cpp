// nsa::attention_varlen on a GPU, all documents at once: against the oracle in fp64, against calls
// of each document, with and without a bound on their lengths, both codes.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <numeric>

#include "nsa/api/attention_call.h"
#include "nsa/backend/kernel_code.h"
#include "nsa/nsa.h"
#include "nsa/ops/common/oracle_util.h"
#include "nsa/reference/reference.h"
#include "nsa/tests/backends_gpu_testing.h"

namespace nsa {
namespace {

namespace ref = reference;
using ::testing::Contains;
using torch::autograd::variable_list;

const std::vector<int64_t> kLengths = {0, 1, 3, 31, 32, 33, 0, 64, 65, 127, 200, 0};
constexpr std::pair<at::ScalarType, double> kBounds[] = {{at::kHalf, 5e-3}, {at::kBFloat16, 4e-2}};

struct CodeScope {
  explicit CodeScope(const std::string& code) { want_kernels(code, at::kCUDA); }
  ~CodeScope() { want_kernels("auto", at::kCUDA); }
};

Config config_of(int64_t group, int64_t dk, int64_t dv) {
  Config config;
  config.num_kv_heads = group == 16 ? 1 : 2;
  config.num_heads = group * config.num_kv_heads;
  config.qk_head_dim = dk, config.v_head_dim = dv;
  config.top_n = 4;
  config.sel_block_size = 32;
  config.window = 50;
  return config;
}

at::Tensor offsets_of(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> offsets{0};
  for (const int64_t length : lengths) offsets.push_back(offsets.back() + length);
  return at::tensor(offsets, at::kInt).to(at::kCUDA);
}

int64_t total(const std::vector<int64_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

/// q, k, v, gates and, with `own`, k and v of selection and window.
variable_list leaves_of(const Config& c, int64_t tokens, at::ScalarType type, bool own = false,
                        uint64_t seed = 31) {
  at::manual_seed(seed);
  variable_list made;
  const auto add = [&](int64_t heads, int64_t dim) {
    made.push_back(at::randn({tokens, heads, dim}, at::kDouble)
                       .to(at::kCUDA, type)
                       .detach()
                       .requires_grad_(true));
  };
  add(c.num_heads, c.qk_head_dim), add(c.num_kv_heads, c.qk_head_dim);
  add(c.num_kv_heads, c.v_head_dim), add(c.num_heads, 3);
  for (int branch = 0; own && branch < 2; ++branch)
    add(c.num_kv_heads, c.qk_head_dim), add(c.num_kv_heads, c.v_head_dim);
  return made;
}

AttentionCall call_of(const variable_list& x, const Config& config, const at::Tensor& offsets,
                      std::optional<int64_t> longest, const at::Tensor& block_idx) {
  AttentionCall call;
  std::copy_n(x.begin(), 4, call.tensors.begin());
  if (x.size() > 4) std::copy_n(x.begin() + 4, 4, call.tensors.begin() + 6);
  call.cu_seqlens = offsets, call.max_seqlen = longest, call.block_idx = block_idx;
  call.config = config;
  return call;
}

at::Tensor packed(const variable_list& x, const Config& config, const at::Tensor& offsets,
                  std::optional<int64_t> longest = {}, const at::Tensor& block_idx = {}) {
  BranchTensors own;
  if (x.size() > 4) own = {{}, {}, x[4], x[5], x[6], x[7]};
  Options options;
  options.block_idx = block_idx;
  return attention_varlen(x[0], x[1], x[2], x[3], offsets, config, options, own, longest);
}

at::Tensor blocks_of(const variable_list& x, const Config& config, const at::Tensor& offsets,
                     std::optional<int64_t> longest = {}, const at::Tensor& block_idx = {}) {
  const at::NoGradGuard no_graph;
  return compute(call_of(x, config, offsets, longest, block_idx)).block_idx;
}

at::Tensor upstream_of(const at::Tensor& o) {
  at::manual_seed(32);
  return at::randn(o.sizes(), at::kDouble).to(o.device(), o.scalar_type());
}

at::Tensor in_fp64(const at::Tensor& x) { return x.detach().to(at::kCPU, at::kDouble); }

/// The oracle's output and gradients, in the order of `x`, on the blocks that were selected.
variable_list oracle(const variable_list& x, const Config& config, const at::Tensor& offsets,
                     const at::Tensor& block_idx, const at::Tensor& d_o) {
  const auto of = [&](size_t i) { return ref_of<double>(in_fp64(x[i])); };
  const bool own = x.size() > 4;
  ref::Inputs in;
  in.q = of(0), in.k_cmp_src = of(1), in.v_cmp_src = of(2), in.gates = of(3);
  in.k_sel = of(own ? 4 : 1), in.v_sel = of(own ? 5 : 2);
  in.k_win = of(own ? 6 : 1), in.v_win = of(own ? 7 : 2);
  ref::Given given;
  given.block_idx = ref_of<int32_t>(block_idx.cpu());
  const at::Tensor host = offsets.cpu();
  const std::vector<int32_t> cu(host.const_data_ptr<int32_t>(),
                                host.const_data_ptr<int32_t>() + host.numel());
  const ref::Config c = ref_of(config);
  const ref::Tensor<double> o = ref::forward_varlen(c, in, cu, given).o;
  const ref::Inputs d = ref::backward_varlen(c, in, cu, ref_of<double>(in_fp64(d_o)), given);
  const auto back = [](const ref::Tensor<double>& t) { return to_aten(t, at::kDouble); };
  const at::Tensor k = back(d.k_cmp_src), v = back(d.v_cmp_src);
  if (own)
    return {back(o),       back(d.q),    k, v, back(d.gates), back(d.k_sel), back(d.v_sel),
            back(d.k_win), back(d.v_win)};
  return {back(o), back(d.q), k + back(d.k_sel) + back(d.k_win), v + back(d.v_sel) + back(d.v_win),
          back(d.gates)};
}

void expect_oracle(const char* name, const Config& config, const std::vector<int64_t>& lengths,
                   at::ScalarType type, double bound, bool own = false, bool given = false) {
  SCOPED_TRACE(std::string(name) + ", " + at::toString(type));
  const variable_list x = leaves_of(config, total(lengths), type, own);
  const at::Tensor offsets = offsets_of(lengths);
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  at::Tensor asked;
  if (given)
    asked = at::randint(-1, 7, {total(lengths), config.num_kv_heads, 5},
                        at::TensorOptions(at::kLong).device(at::kCUDA));
  const auto record = c10::make_intrusive<RunRecord>();
  const RunRecordScope scope(record);
  const at::Tensor ids = blocks_of(x, config, offsets, longest, asked);
  const at::Tensor o = packed(x, config, offsets, longest, asked);
  const at::Tensor d_o = upstream_of(o);
  const variable_list have = torch::autograd::grad({o}, x, {d_o});
  bool at_once = false;
  for (const RanBackend& row : record->rows())
    at_once = at_once || (std::string(row.stage) == "packed" && row.backend == "fused");
  EXPECT_TRUE(at_once) << "not all documents at once";
  const variable_list want = oracle(x, config, offsets, ids, d_o);
  EXPECT_LE(distance(in_fp64(o), want[0]), bound) << "o";
  for (size_t i = 0; i < have.size(); ++i)
    EXPECT_LE(distance(in_fp64(have[i]), want[i + 1]), bound) << "gradient " << i;
}

TEST(PackedOnCuda, AgreesWithTheOracle) {
  for (const char* code : {"auto", "sm80"}) {
    const CodeScope scope(code);
    for (const auto& [type, bound] : kBounds)
      for (const auto& [group, dk, dv] : {std::tuple{4, 64, 64},
                                          {16, 64, 64},
                                          {6, 64, 64},
                                          {4, 128, 128},
                                          {16, 192, 128},
                                          {4, 256, 256}})
        expect_oracle((std::string(code) + " G " + std::to_string(group) + " " +
                       std::to_string(dk) + "/" + std::to_string(dv))
                          .c_str(),
                      config_of(group, dk, dv), kLengths, type, bound);
  }
}

TEST(PackedOnCuda, AgreesWithTheOracleInOtherSettings) {
  for (const char* code : {"auto", "sm80"}) {
    const CodeScope scope(code);
    const auto expect = [&](const char* name, Config config, bool own = false, bool given = false) {
      expect_oracle(name, config, kLengths, at::kBFloat16, 4e-2, own, given);
    };
    Config config = config_of(4, 64, 64);
    expect("K and V of their own", config, /*own=*/true);
    expect("given blocks", config, false, /*given=*/true);
    config.rope = RopeMode::kNone;
    expect("no rotation", config);
    expect("no rotation, K and V of their own", config, true);
    config.gate = GateActivation::kSigmoid;
    config.window = 0;
    expect("no window", config);
    config = config_of(4, 64, 64);
    config.gate = GateActivation::kNone;
    expect("gates as they are", config);
    config = config_of(4, 64, 64);
    config.sel_block_size = 64, config.window = 512, config.top_n = 3;
    expect("blocks of 64", config);
    config.block_size = config.block_stride = config.sel_block_size = 16;
    config.top_n = 6;
    expect("blocks of 16", config);
  }
}

/// Heads of other dims than the kernels': all documents at once, in larger ones.
TEST(PackedOnCuda, PaddedHeadsAgreeWithTheOracle) {
  for (const char* code : {"auto", "sm80"}) {
    const CodeScope scope(code);
    for (const auto& [type, bound] : kBounds)
      for (const auto& [group, dk, dv] :
           {std::tuple{4, 96, 96}, {2, 32, 32}, {16, 80, 80}, {4, 160, 120}})
        expect_oracle(
            (std::string(code) + " " + std::to_string(dk) + "/" + std::to_string(dv)).c_str(),
            config_of(group, dk, dv), kLengths, type, bound);
    Config config = config_of(4, 96, 96);
    config.gate = GateActivation::kNone;
    expect_oracle("own keys, gates as they are", config, kLengths, at::kBFloat16, 4e-2, true);
    config.rope = RopeMode::kNone;
    expect_oracle("not rotated, given blocks", config, kLengths, at::kBFloat16, 4e-2, false, true);
  }
}

TEST(PackedOnCuda, ManyShortAndFewLongDocuments) {
  const Config config = config_of(4, 64, 64);
  expect_oracle("one", config, {300}, at::kBFloat16, 4e-2);
  expect_oracle("of one token", config, std::vector<int64_t>(150, 1), at::kBFloat16, 4e-2);
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 60; ++i) lengths.push_back(i * 7 % 17);
  expect_oracle("short", config, lengths, at::kBFloat16, 4e-2);
  expect_oracle("no token before the first block ends", config, {15, 0, 31}, at::kHalf, 5e-3);
}

/// Blocks are the same, results within the rounding that the oracle allows.
TEST(PackedOnCuda, AgreesWithCallsOfEachDocument) {
  for (const char* code : {"auto", "sm80"}) {
    const CodeScope scope(code);
    for (const auto& [type, bound] : kBounds)
      for (const int64_t group : {4, 16}) {
        SCOPED_TRACE(std::string(code) + " G " + std::to_string(group) + at::toString(type));
        Config config = config_of(group, 64, 64);
        config.sel_block_size = 64, config.window = 200;
        const std::vector<int64_t> lengths = {3, 700, 0, 64, 1300, 1, 129};
        const variable_list x = leaves_of(config, total(lengths), type);
        const at::Tensor offsets = offsets_of(lengths);
        const at::Tensor o = packed(x, config, offsets), ids = blocks_of(x, config, offsets);
        const at::Tensor d_o = upstream_of(o);
        const variable_list have = torch::autograd::grad({o}, x, {d_o});
        int64_t begin = 0;
        for (const int64_t length : lengths) {
          variable_list own;
          for (const at::Tensor& t : x)
            own.push_back(
                t.detach().narrow(0, begin, length).unsqueeze(0).clone().requires_grad_(true));
          const at::Tensor alone = attention(own[0], own[1], own[2], own[3], config);
          const at::Tensor alone_ids = blocks_of(own, config, {});
          EXPECT_TRUE(ids.narrow(0, begin, length).equal(alone_ids.squeeze(0))) << length;
          const auto part = [&](const at::Tensor& t) {
            return in_fp64(t.narrow(0, begin, length)).unsqueeze(0);
          };
          EXPECT_LE(distance(part(o), in_fp64(alone)), bound) << length;
          const variable_list want =
              torch::autograd::grad({alone}, own, {d_o.narrow(0, begin, length).unsqueeze(0)});
          for (size_t i = 0; i < want.size(); ++i)
            EXPECT_LE(distance(part(have[i]), in_fp64(want[i])), bound)
                << length << ", gradient " << i;
          begin += length;
        }
      }
  }
}

variable_list step(const variable_list& x, const Config& config, const at::Tensor& offsets,
                   std::optional<int64_t> longest, const at::Tensor& d_o) {
  variable_list out{packed(x, config, offsets, longest)};
  for (const at::Tensor& g : torch::autograd::grad({out[0]}, x, {d_o})) out.push_back(g);
  out[0] = out[0].detach();
  return out;
}

void expect_same_bits(const variable_list& have, const variable_list& want) {
  ASSERT_EQ(have.size(), want.size());
  for (size_t i = 0; i < have.size(); ++i) EXPECT_TRUE(have[i].equal(want[i])) << i;
}

TEST(PackedOnCuda, OffsetsOnTheHostChangeNoBitAndABoundOnlyTheOrderOfSums) {
  const Config config = config_of(4, 64, 64);
  const variable_list x = leaves_of(config, total(kLengths), at::kBFloat16);
  const at::Tensor offsets = offsets_of(kLengths), d_o = upstream_of(x[0]);
  const variable_list want = step(x, config, offsets, {}, d_o);
  expect_same_bits(step(x, config, offsets.cpu(), {}, d_o), want);
  expect_same_bits(step(x, config, offsets, {}, d_o), want);
  expect_same_bits(step(x, config, offsets, 100000, d_o), want);
  EXPECT_TRUE(blocks_of(x, config, offsets, 200).equal(blocks_of(x, config, offsets)));
  // Places of partial sums, and so their order, depend on how many tiles a row may attend.
  const variable_list bounded = step(x, config, offsets, 200, d_o);
  expect_same_bits(step(x, config, offsets, 200, d_o), bounded);
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_LE(distance(in_fp64(bounded[i]), in_fp64(want[i])), 4e-2) << i;
}

/// A host synchronisation would end the capture; the offsets are read when the graph runs.
TEST(PackedOnCuda, AGraphOfATrainingStepComputesFromNewOffsets) {
  const Config config = config_of(4, 64, 64);
  const variable_list x = leaves_of(config, total(kLengths), at::kBFloat16);
  const at::Tensor d_o = upstream_of(x[0]);
  const c10::cuda::CUDAStreamGuard guard(at::cuda::getStreamFromPool());
  const at::Tensor offsets = offsets_of(kLengths);
  step(x, config, offsets, 300, d_o);
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  const variable_list replayed = step(x, config, offsets, 300, d_o);
  graph.capture_end();
  std::vector<int64_t> lengths = kLengths;
  std::reverse(lengths.begin(), lengths.end());
  offsets.copy_(offsets_of(lengths));
  const variable_list eager = step(x, config, offsets, 300, d_o);
  graph.replay();
  expect_same_bits(replayed, eager);
  lengths = kLengths;
  offsets.copy_(offsets_of(lengths));
  const variable_list first = step(x, config, offsets, 300, d_o);
  EXPECT_FALSE(first[0].equal(eager[0]));
  graph.replay();
  expect_same_bits(replayed, first);
}

TEST(PackedOnCuda, TokensBehindTheBoundAreNaNAndAllOthersAsTheyAre) {
  const Config config = config_of(4, 64, 64);
  const variable_list x = leaves_of(config, total(kLengths), at::kBFloat16);
  const at::NoGradGuard no_graph;
  const at::Tensor offsets = offsets_of(kLengths);
  const at::Tensor want = packed(x, config, offsets), have = packed(x, config, offsets, 64);
  int64_t begin = 0;
  for (const int64_t length : kLengths) {
    const int64_t inside = std::min<int64_t>(length, 64);
    EXPECT_TRUE(have.narrow(0, begin, inside).equal(want.narrow(0, begin, inside))) << length;
    EXPECT_TRUE(have.narrow(0, begin + inside, length - inside).isnan().all().item<bool>())
        << length;
    begin += length;
  }
}

TEST(PackedOnCuda, OffsetsAreRefusedWhereTheyAreRead) {
  const Config config = config_of(4, 64, 64);
  const variable_list x = leaves_of(config, 100, at::kBFloat16);
  const auto offsets = [](std::vector<int64_t> values) { return at::tensor(values, at::kInt); };
  EXPECT_THROW(packed(x, config, offsets({0, 50, 99}).to(at::kCUDA)), c10::Error);
  EXPECT_THROW(packed(x, config, offsets({0, 60, 50, 100}).to(at::kCUDA)), c10::Error);
  EXPECT_THROW(packed(x, config, offsets({0, 60, 100}), 50), c10::Error);
  EXPECT_NO_THROW(packed(x, config, offsets({0, 60, 100}), 60));
  // Type and rank are known without a look.
  EXPECT_THROW(packed(x, config, offsets({0, 100}).to(at::kCUDA, at::kLong), 100), c10::Error);
  EXPECT_THROW(packed(x, config, offsets({0, 100}).to(at::kCUDA).unsqueeze(0), 100), c10::Error);
}

TEST(PackedOnCuda, ADocumentThatIsNotFiniteReachesNoOther) {
  const Config config = config_of(4, 64, 64);
  const variable_list x = leaves_of(config, total(kLengths), at::kBFloat16);
  const at::Tensor offsets = offsets_of(kLengths), d_o = upstream_of(x[0]);
  const variable_list want = step(x, config, offsets, 200, d_o);
  int64_t begin = 0, first = 0, last = 0;
  for (const int64_t length : kLengths) {
    if (length == 65) first = begin, last = begin + length;
    begin += length;
  }
  variable_list bad;
  for (const at::Tensor& t : x) bad.push_back(t.detach().clone());
  for (const size_t i : {1, 2}) bad[i].narrow(0, first, last - first).fill_(NAN);
  for (at::Tensor& t : bad) t.requires_grad_(true);
  const variable_list have = step(bad, config, offsets, 200, d_o);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_TRUE(have[i].narrow(0, 0, first).equal(want[i].narrow(0, 0, first))) << i;
    const int64_t rest = begin - last;
    EXPECT_TRUE(have[i].narrow(0, last, rest).equal(want[i].narrow(0, last, rest))) << i;
  }
  EXPECT_TRUE(have[0].narrow(0, first, last - first).isnan().all().item<bool>());
}

TEST(PackedOnCuda, WhatTheKernelsDoNotCoverRunsInBatchesAndIsRecorded) {
  Config config = config_of(4, 96, 264);
  const variable_list x = leaves_of(config, 100, at::kBFloat16);
  const at::Tensor offsets = offsets_of({40, 60});
  const auto record = c10::make_intrusive<RunRecord>();
  const RunRecordScope scope(record);
  const at::Tensor o = packed(x, config, offsets), d_o = upstream_of(o);
  const variable_list have = torch::autograd::grad({o}, x, {d_o});
  std::vector<std::string> reasons;
  for (const RanBackend& row : record->rows())
    if (std::string(row.stage) == "packed" && row.backend == "batches")
      reasons.push_back(row.reason);
  EXPECT_THAT(reasons, Contains(::testing::HasSubstr("head dims")));
  const variable_list want = oracle(x, config, offsets, blocks_of(x, config, offsets), d_o);
  EXPECT_LE(distance(in_fp64(o), want[0]), 4e-2);
  for (size_t i = 0; i < have.size(); ++i)
    EXPECT_LE(distance(in_fp64(have[i]), want[i + 1]), 4e-2) << i;
}

TEST(PackedOnCuda, WithoutATokenThereIsNothing) {
  const Config config = config_of(4, 64, 64);
  const variable_list x = leaves_of(config, 0, at::kBFloat16);
  const at::Tensor o = packed(x, config, offsets_of({0, 0}));
  EXPECT_EQ(o.sizes(), (std::vector<int64_t>{0, 8, 64}));
  for (const at::Tensor& g : torch::autograd::grad({o}, x, {at::ones_like(o)}))
    EXPECT_EQ(g.numel(), 0);
}

}  // namespace
}  // namespace nsa
