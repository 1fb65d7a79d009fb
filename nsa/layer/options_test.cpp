// Requested and recorded backends of a call: switches, backends, records, strict mode.
#include <ATen/ATen.h>

#include <limits>

#include "nsa/layer/nsa_attention.h"
#include "nsa/layer/random_inputs.h"
#include "nsa/layer/strict_asserts.h"
#include "nsa/ops/common/test_util.h"

namespace nsa {
namespace {

using ::testing::HasSubstr;

NsaConfig small() {
  NsaConfig c;
  c.num_heads = 4, c.num_kv_heads = 2, c.qk_head_dim = 8, c.v_head_dim = 6;
  c.block_size = 8, c.block_stride = 4, c.sel_block_size = 16, c.top_n = 4, c.window = 12;
  return c;
}

NsaOptions switched(const SwitchSet::Values& environment) {
  return NsaOptions::from(SwitchSet::from({}, environment, {}));
}

/// "requested backend detail reason" of a stage's rows, joined.
std::string row_of(const NsaOutputs& out, const std::string& stage) {
  std::string text;
  for (const RanBackend& row : out.ran) {
    if (row.stage != stage) continue;
    text += (text.empty() ? "" : "; ") + row.requested + "/" + row.backend + "/" + row.detail +
            "/" + row.reason;
  }
  return text;
}

NsaOutputs call(const NsaOptions& options, int64_t s = 45) {
  at::manual_seed(21);
  return nsa_attention(random_inputs(small(), 2, s), small(), options);
}

TEST(Options, DefaultIsThatOfTheSpecification) {
  const NsaOutputs out = call(switched({}));
  EXPECT_EQ(row_of(out, "sel_attn"), "gather/gather//");
  EXPECT_EQ(row_of(out, "win_attn"), "plain/plain//");
  EXPECT_EQ(row_of(out, "cmp_attn"), "plain/plain//");
  EXPECT_EQ(row_of(out, "ranges"), "v2/v2//");
  EXPECT_TRUE(switched({}).prefill_batched);
  EXPECT_FALSE(switched({{"NSA_PREFILL_BATCHED", "0"}}).prefill_batched);
}

TEST(Options, EachSelectionSwitchRunsItsBackendWithTheSameResult) {
  const at::Tensor want = call({}).o;
  const std::pair<const char*, const char*> switches[] = {
      {"NSA_USE_SEL_PACK", "packed/packed/safe/"},
      {"NSA_USE_SEL_VARLEN", "varlen/varlen/plain: it needs CUDA tensors/"},
      {"NSA_USE_SEL_MASK", "masked/masked//"},
      {"NSA_FORCE_SEL_MASK", "masked/masked//"}};
  for (const auto& [name, row] : switches) {
    const NsaOutputs out = call(switched({{name, "1"}}));
    EXPECT_EQ(row_of(out, "sel_attn"), row) << name;
    EXPECT_TRUE(at::allclose(out.o, want, 1e-5, 1e-6)) << name;
  }
  const NsaOutputs workspace =
      call(switched({{"NSA_USE_SEL_PACK", "1"}, {"NSA_TRAIN_SAFE_PACK", "0"}}));
  EXPECT_EQ(row_of(workspace, "sel_attn"), "packed/packed/workspace/");
}

TEST(Options, ForcedBackendHasPrecedenceAndTheRequestIsRecorded) {
  const NsaOutputs masked =
      call(switched({{"NSA_USE_SEL_PACK", "1"}, {"NSA_FORCE_SEL_MASK", "1"}}));
  EXPECT_EQ(row_of(masked, "sel_attn"), "masked/masked//");
  EXPECT_EQ(row_of(masked, "sel_attn.request"), "packed/masked//overridden by NSA_FORCE_SEL_MASK");
  const NsaOutputs parity = call(
      switched({{"NSA_USE_SEL_VARLEN", "1"}, {"NSA_USE_FA2", "1"}, {"NSA_FORCE_PARITY", "1"}}));
  EXPECT_EQ(row_of(parity, "sel_attn"), "gather/gather//");
  EXPECT_EQ(row_of(parity, "sel_attn.request"), "varlen/gather//overridden by NSA_FORCE_PARITY");
  EXPECT_EQ(row_of(parity, "win_attn.request"), "flash/plain//overridden by NSA_FORCE_PARITY");
  EXPECT_EQ(row_of(parity, "cmp_attn"), "plain/plain//");
}

TEST(Options, FlashThatDoesNotApplyIsRecordedOrRefused) {
  const std::string none = "plain/plain//";
  const std::string window = "flash/plain//it needs CUDA tensors";
  const std::string compressed = "flash/plain//the library's masks are causal by token";
  const NsaOutputs both = call(switched({{"NSA_USE_FA2", "1"}}));
  EXPECT_EQ(row_of(both, "win_attn"), window);
  EXPECT_THAT(row_of(both, "cmp_attn"), HasSubstr(compressed));
  const NsaOutputs win = call(switched({{"NSA_USE_FA2_WIN", "1"}}));
  EXPECT_EQ(row_of(win, "win_attn"), window);
  EXPECT_EQ(row_of(win, "cmp_attn"), none);
  const NsaOutputs cmp = call(switched({{"NSA_USE_FA2_CMP", "1"}}));
  EXPECT_EQ(row_of(cmp, "win_attn"), none);
  EXPECT_THAT(row_of(cmp, "cmp_attn"), HasSubstr(compressed));
  EXPECT_TRUE(at::equal(both.o, call({}).o));

  NsaOptions strict;
  strict.strict_backend = true;
  strict.win = BranchBackend::kFlash;
  EXPECT_THAT(error_of([&] { call(strict); }),
              HasSubstr("nsa::win_attn: backend must be flash, got plain: it needs CUDA tensors"));
  strict.win = BranchBackend::kCudnn;
  EXPECT_THAT(error_of([&] { call(strict); }),
              HasSubstr("nsa::win_attn: backend must be cudnn, got plain: its mask is causal "
                        "without a window"));
  strict.win = BranchBackend::kPlain, strict.cmp = BranchBackend::kFlash;
  EXPECT_THAT(error_of([&] { call(strict); }),
              HasSubstr("nsa::cmp_attn: backend must be flash, got plain: the library's masks"));
}

TEST(Options, BackendNamesAreParsedOrRefused) {
  EXPECT_EQ(parse_sel_backend("varlen"), SelBackend::kVarlen);
  EXPECT_EQ(to_string(parse_branch_backend("cudnn")), "cudnn");
  try {
    parse_sel_backend("flash");
    ADD_FAILURE() << "accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(),
                 "backend of the selected branch must be one of gather, packed, varlen, masked, "
                 "fused, cpu, got 'flash'");
  }
}

TEST(Options, StrictAssertsRerouteANonFiniteOutput) {
  const NsaOptions options = switched({{"NSA_STRICT_ASSERTS", "1"}, {"NSA_USE_SEL_MASK", "1"}});
  EXPECT_EQ(row_of(call(options), "sel_attn"), "masked/masked//");
  at::manual_seed(22);
  NsaInputs in = random_inputs(small(), 1, 20, at::kBFloat16);
  in.q = in.q * 1e20, in.k_sel = in.k_sel * 1e20;  // logits overflow to infinity in fp32
  const NsaOutputs out = nsa_attention(in, small(), options);
  EXPECT_EQ(row_of(out, "sel_attn"),
            "masked/masked//; masked/gather//REROUTED: non-finite output of masked on finite "
            "inputs; still not finite");
  EXPECT_EQ(row_of(nsa_attention(in, small(), switched({{"NSA_USE_SEL_MASK", "1"}})), "sel_attn"),
            "masked/masked//");
  in.v_sel[0][3][0][0] = std::numeric_limits<float>::quiet_NaN();  // a non-finite input may show
  EXPECT_EQ(row_of(nsa_attention(in, small(), options), "sel_attn"), "masked/masked//");
}

TEST(Options, StrictAssertsNameANonFiniteOutputThatNothingElseCanCompute) {
  at::manual_seed(22);
  NsaInputs in = random_inputs(small(), 1, 20, at::kBFloat16);
  in.q = in.q * 1e20, in.k_sel = in.k_sel * 1e20, in.k_cmp_src = in.k_cmp_src * 1e20;
  const NsaOutputs out = nsa_attention(in, small(), switched({{"NSA_STRICT_ASSERTS", "1"}}));
  EXPECT_EQ(row_of(out, "sel_attn.assert"),
            "gather/gather//non-finite output of gather on finite inputs");
  EXPECT_EQ(row_of(out, "cmp_attn.assert"),
            "plain/plain//non-finite output of plain on finite inputs");
  EXPECT_EQ(row_of(out, "win_attn.assert"), "");
}

TEST(Options, CausalityAssertsNameTheFirstOffender) {
  at::Tensor ranges = at::zeros({1, 6, 1, 2, 2}, at::kInt);
  EXPECT_EQ(error_of([&] { check_causal_ranges(ranges); }), "accepted");
  ranges[0][3][0][1][1] = 5;
  EXPECT_THAT(error_of([&] { check_causal_ranges(ranges); }),
              HasSubstr("nsa::nsa_attention: end of ranges must be at most t + 1, got 5 at t = 3"));
  at::Tensor ids = at::full({1, 6, 1, 2}, -1, at::kInt);
  EXPECT_EQ(error_of([&] { check_causal_blocks(ids, 4); }), "accepted");
  ids[0][3][0][0] = 1;
  EXPECT_THAT(
      error_of([&] { check_causal_blocks(ids, 4); }),
      HasSubstr("nsa::nsa_attention: block_idx must be at most floor(t / l'), got 1 at t = 3"));
}

TEST(Options, ProgramsSeeWhatRanInEveryCall) {
  const auto record = c10::make_intrusive<RunRecord>();
  const RunRecordScope scope(record);
  call({});
  call({});
  for (const RanBackend& row : record->rows()) EXPECT_EQ(row.count, 2) << row.stage;
  EXPECT_GE(record->rows().size(), 6u);
}

TEST(Options, AnAuditWithoutLibraryCallsIsEmpty) {
  EXPECT_TRUE(call(switched({{"NSA_SDPA_AUDIT", "1"}})).sdpa_calls.empty());
  RunRecord audit(/*audit=*/true), off;
  const at::Tensor x = at::zeros({2, 3, 4, 8}, at::kHalf);
  for (int i = 0; i < 2; ++i) audit.sdpa("_flash_attention_forward", x, x, x, 5);
  off.sdpa("_flash_attention_forward", x, x, x);
  ASSERT_EQ(audit.sdpa_calls().size(), 1u);
  EXPECT_EQ(audit.sdpa_calls()[0].shapes[2], (std::vector<int64_t>{2, 3, 4, 8}));
  EXPECT_EQ(audit.sdpa_calls()[0].dtype, "Half");
  EXPECT_EQ(audit.sdpa_calls()[0].count, 2);
  EXPECT_TRUE(off.sdpa_calls().empty());
}

TEST(Options, GivenIdsOutOfRangeAreCountedAndNotRead) {
  at::manual_seed(23);
  const NsaInputs in = random_inputs(small(), 2, 45, at::kDouble);
  const NsaOutputs own = nsa_attention(in, small());
  EXPECT_FALSE(own.dropped_ids.defined());
  NsaOptions given;
  given.block_idx = own.block_idx;
  EXPECT_EQ(nsa_attention(in, small(), given).dropped_ids.item<int64_t>(), 0);
  const at::Tensor strange = ints(
      {-2, std::numeric_limits<int32_t>::min(), 1000, std::numeric_limits<int32_t>::max()}, {4});
  given.block_idx = at::cat({own.block_idx, strange.expand({2, 45, 2, 4})}, -1);
  for (const RangesVersion version : {RangesVersion::kV1, RangesVersion::kV2}) {
    given.ranges = version;
    const NsaOutputs out = nsa_attention(in, small(), given);
    EXPECT_EQ(out.dropped_ids.item<int64_t>(), 2 * 45 * 2 * 4);
    EXPECT_TRUE(at::equal(out.o, own.o));
  }
}

/// The ids of own [.., n] in another order, as another type, with repeats and places between them.
std::vector<at::Tensor> same_sets(const at::Tensor& own) {
  const at::Tensor shuffled = own.index_select(-1, at::randperm(own.size(-1), at::kLong));
  const at::Tensor unused = at::full_like(own, -1);
  const at::Tensor strange = at::full_like(own, 1'000'000);
  return {own.flip(-1),
          shuffled,
          own.to(at::kLong),
          own.flip(-1).to(at::kLong),
          at::cat({own, own}, -1),
          at::cat({own.flip(-1), own}, -1),
          at::cat({unused, own.flip(-1), strange, own}, -1),
          at::cat({own.to(at::kLong) + (int64_t{1} << 40), own.to(at::kLong)}, -1)};
}

TEST(Options, GivenIdsAreASet) {
  at::manual_seed(29);
  const NsaInputs in = random_inputs(small(), 2, 45, at::kDouble);
  const NsaOutputs own = nsa_attention(in, small());
  NsaOptions given;
  for (const at::Tensor& ids : same_sets(own.block_idx)) {
    given.block_idx = ids;
    for (const RangesVersion version : {RangesVersion::kV1, RangesVersion::kV2}) {
      given.ranges = version;
      const NsaOutputs out = nsa_attention(in, small(), given);
      EXPECT_TRUE(at::equal(out.o, own.o));
      EXPECT_EQ(out.block_idx.scalar_type(), at::kInt);
      EXPECT_TRUE(at::equal(out.block_idx.narrow(-1, 0, own.block_idx.size(-1)), own.block_idx));
      EXPECT_TRUE(
          out.block_idx.narrow(-1, own.block_idx.size(-1), ids.size(-1) - own.block_idx.size(-1))
              .eq(-1)
              .all()
              .item<bool>());
    }
  }
}

TEST(Options, AWrongBlockIdxIsNamed) {
  const NsaInputs in = random_inputs(small(), 2, 9);
  const auto with = [&](const at::Tensor& block_idx) {
    NsaOptions options;
    options.block_idx = block_idx;
    return error_of([&] { nsa_attention(in, small(), options); });
  };
  for (const at::ScalarType type : {at::kFloat, at::kShort, at::kBool})
    EXPECT_THAT(with(at::zeros({2, 9, 2, 4}, type)),
                HasSubstr("nsa::nsa_attention: block_idx must be Int or Long, got"));
  EXPECT_THAT(
      with(at::zeros({2, 8, 2, 4}, at::kInt)),
      HasSubstr("block_idx must be [B, S, Hkv, n] = [2, 9, 2, any], got shape [2, 8, 2, 4]"));
  EXPECT_EQ(with(at::zeros({2, 9, 2, 0}, at::kInt)), "accepted");
}

/// Forward and gradients of packed documents equal those of separate calls, for every backend.
TEST(Packed, EveryBackendEqualsSeparateCalls) {
  at::manual_seed(24);
  const std::vector<int64_t> offsets{0, 0, 1, 8, 15, 23, 60, 60, 76, 118};
  for (const SelBackend backend :
       {SelBackend::kGather, SelBackend::kPacked, SelBackend::kVarlen, SelBackend::kMasked}) {
    NsaOptions options;
    options.sel = backend;
    NsaInputs in = random_inputs(small(), 1, offsets.back(), at::kDouble, /*packed=*/true);
    in.cu_seqlens = at::tensor(std::vector<int32_t>(offsets.begin(), offsets.end()), at::kInt);
    for (auto& [name, tensor] : differentiable(in)) tensor->requires_grad_(true);
    const NsaOutputs packed = nsa_attention(in, small(), options);
    const at::Tensor weight = at::randn(packed.o.sizes(), at::kDouble);
    (packed.o * weight).sum().backward();
    NsaInputs alone = in;
    for (auto& [name, tensor] : differentiable(alone)) {
      *tensor = tensor->detach().clone().requires_grad_(true);
    }
    at::Tensor cmp_begin = packed.cu_cmp.to(at::kLong);
    for (size_t doc = 0; doc + 1 < offsets.size(); ++doc) {
      const int64_t begin = offsets[doc], length = offsets[doc + 1] - begin;
      NsaInputs own = alone;
      own.cu_seqlens = at::Tensor();
      for (auto& [name, tensor] : differentiable(own)) {
        if (name.find("phi") == std::string::npos) {
          *tensor = tensor->narrow(0, begin, length).unsqueeze(0);
        }
      }
      const NsaOutputs want = nsa_attention(own, small(), options);
      (want.o.squeeze(0) * weight.narrow(0, begin, length)).sum().backward();
      const auto rows = [&](const at::Tensor& x) { return x.detach().narrow(0, begin, length); };
      expect_near(rows(packed.o), want.o.detach().squeeze(0), 1e-13);
      expect_near(rows(packed.lse_cmp), want.lse_cmp.detach().squeeze(0), 1e-13);
      EXPECT_TRUE(at::equal(rows(packed.block_idx), want.block_idx.squeeze(0)));
      EXPECT_TRUE(at::equal(rows(packed.ranges), want.ranges.squeeze(0)));
      const int64_t first = cmp_begin[static_cast<int64_t>(doc)].item<int64_t>();
      const at::Tensor k_cmp = want.k_cmp.detach().squeeze(0);
      expect_near(packed.k_cmp.detach().narrow(0, first, k_cmp.size(0)), k_cmp, 1e-13);
    }
    auto mine = differentiable(in), theirs = differentiable(alone);
    for (size_t i = 0; i < mine.size(); ++i) {
      expect_near(mine[i].second->grad(), theirs[i].second->grad(), 1e-12);
    }
  }
}

TEST(Packed, AThousandTinyDocumentsTakeAFewCalls) {
  at::manual_seed(25);
  std::vector<int32_t> offsets{0};
  for (int doc = 0; doc < 1000; ++doc) offsets.push_back(offsets.back() + doc % 20);
  NsaInputs in = random_inputs(small(), 1, offsets.back(), {}, /*packed=*/true);
  in.cu_seqlens = at::tensor(offsets, at::kInt);
  const NsaOutputs out = nsa_attention(in, small());
  for (const RanBackend& row : out.ran) EXPECT_LE(row.count, 6) << row.stage;
  EXPECT_TRUE(out.o.isfinite().all().item<bool>());
}

TEST(Packed, ADocumentDoesNotReachItsNeighbours) {
  at::manual_seed(26);
  NsaInputs in = random_inputs(small(), 1, 60, at::kDouble, /*packed=*/true);
  in.cu_seqlens = at::tensor(std::vector<int32_t>{0, 20, 40, 60}, at::kInt);
  const at::Tensor before = nsa_attention(in, small()).o;
  for (auto& [name, tensor] : differentiable(in)) {
    *tensor = tensor->clone();
    tensor->narrow(0, 20, 20).fill_(std::numeric_limits<double>::quiet_NaN());
  }
  const at::Tensor after = nsa_attention(in, small()).o;
  EXPECT_TRUE(at::equal(after.narrow(0, 0, 20), before.narrow(0, 0, 20)));
  EXPECT_TRUE(at::equal(after.narrow(0, 40, 20), before.narrow(0, 40, 20)));
  EXPECT_TRUE(after.narrow(0, 20, 20).isnan().any().item<bool>());
}

}  // namespace
}  // namespace nsa
