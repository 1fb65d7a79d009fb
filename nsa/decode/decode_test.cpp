// The modes agree and count what they read; NaN reaches only what attends it. The oracle judges
// decode in all types in suites/conformance.
#include "nsa/decode/test_util.h"

namespace nsa {
namespace {

using ::testing::HasSubstr;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

/// The formula of docs/semantics.md, Read counts, to compare counts with.
at::Tensor expected_reads(const NsaConfig& c, int64_t batch, int64_t num_tokens) {
  at::Tensor reads = at::zeros({batch, num_tokens, c.num_kv_heads, 3}, at::kLong);
  for (int64_t t = 0; t < num_tokens; ++t) {
    const int64_t block = t / c.sel_block_size;
    at::Tensor row = reads.select(1, t);
    row.select(2, 0).fill_(c.num_compressed(t + 1));
    row.select(2, 1).fill_((std::min(c.top_n, block + 1) - 1) * c.sel_block_size + t -
                           block * c.sel_block_size + 1);
    row.select(2, 2).fill_(std::min(c.window, t + 1));
  }
  return reads;
}

TEST(Decode, PrefillThenStepsEqualsPrefillOfAll) {
  const NsaConfig c = small();
  at::manual_seed(1);
  const NsaInputs in = random_inputs(c, 1, 61, at::kDouble);
  const NsaOutputs want = nsa_attention(in, c);
  for (const int64_t s : {0, 1, 7, 8, 9, 11, 12, 13, 15, 16, 17, 31, 37, 61}) {
    SCOPED_TRACE("prefill " + std::to_string(s));
    const DecodeOutputs have = decode_attention(in, c, {}, {s});
    expect_same(have, want);
    expect_near(have.k_cmp, want.k_cmp, 1e-13);
    expect_near(have.v_cmp, want.v_cmp, 1e-13);
    EXPECT_TRUE(at::equal(have.reads, expected_reads(c, 1, 61)));
  }
}

TEST(Decode, EveryPhiRopeAndGateInEveryMode) {
  at::manual_seed(2);
  for (const Phi phi : {Phi::kMean, Phi::kConv, Phi::kMlp}) {
    for (const RopeMode rope : {RopeMode::kBeforePool, RopeMode::kBlockStart, RopeMode::kNone}) {
      NsaConfig c = small();
      c.phi = phi, c.rope = rope;
      c.gate = std::array{GateActivation::kNone, GateActivation::kSoftmax,
                          GateActivation::kSigmoid}[static_cast<size_t>(rope)];
      const NsaInputs in = random_inputs(c, 2, 43, at::kDouble);
      const NsaOutputs want = nsa_attention(in, c);
      SCOPED_TRACE(to_string(phi) + " " + to_string(rope));
      expect_same(run_attention(Mode::kDecode, in, c, {}, {5, 14}), want);
      expect_same(run_attention(Mode::kSequential, in, c), want);
    }
  }
}

TEST(Decode, UnusualSizes) {
  at::manual_seed(3);
  for (const int64_t group : {1, 2, 6, 16}) {
    NsaConfig c = small();
    c.num_heads = 2 * group;
    c.num_initial = 0, c.num_local = 1, c.top_n = 2, c.window = 1;
    const NsaInputs in = random_inputs(c, 2, 37, at::kDouble);
    expect_same(decode_attention(in, c, {}, {3, 33}), nsa_attention(in, c));
    c.block_size = c.block_stride = 1, c.sel_block_size = 1, c.top_n = 5, c.window = 100;
    expect_same(decode_attention(in, c), nsa_attention(in, c));
  }
}

TEST(Decode, SmallerTypesStayNearDouble) {
  const NsaConfig c = small();
  at::manual_seed(4);
  const NsaInputs exact = random_inputs(c, 2, 50, at::kDouble);
  const std::pair<at::ScalarType, double> types[] = {
      {at::kFloat, 1e-5}, {at::kHalf, 1e-2}, {at::kBFloat16, 6e-2}};
  for (const auto& [type, bound] : types) {
    NsaInputs rounded = exact;
    for (auto& [name, tensor] : differentiable(rounded)) *tensor = tensor->to(type);
    NsaInputs widened = rounded;
    for (auto& [name, tensor] : differentiable(widened)) *tensor = tensor->to(at::kDouble);
    const DecodeOutputs have = decode_attention(rounded, c, {}, {11, 26});
    EXPECT_EQ(have.o.scalar_type(), type);
    EXPECT_EQ(have.lse_sel.scalar_type(), at::kFloat);
    NsaOptions same_blocks;
    same_blocks.block_idx = have.block_idx;
    const at::Tensor want = nsa_attention(widened, c, same_blocks).o;
    EXPECT_LE((have.o.to(at::kDouble) - want).abs().max().item<double>(), bound) << type;
  }
}

TEST(Decode, NonFiniteTokensReachExactlyTheRowsThatAttendThem) {
  NsaConfig c = small();
  c.top_n = 3;
  at::manual_seed(5);
  const NsaInputs clean = random_inputs(c, 1, 60, at::kDouble);
  const auto members = {&NsaInputs::k_cmp_src, &NsaInputs::v_cmp_src, &NsaInputs::k_sel,
                        &NsaInputs::v_sel,     &NsaInputs::k_win,     &NsaInputs::v_win};
  NsaOptions same_blocks;  // NaN scores rank alike in all modes; the blocks are fixed all the same
  same_blocks.block_idx = nsa_attention(clean, c).block_idx;
  for (const auto member : members) {
    for (const double value : {kNaN, kInf}) {
      NsaInputs in = clean;
      in.*member = (in.*member).clone();
      (in.*member)[0][21][1].fill_(value);
      const NsaOutputs want = nsa_attention(in, c, same_blocks);
      const DecodeOutputs have = decode_attention(in, c, same_blocks, {13});
      for (const auto branch :
           {&NsaOutputs::o_cmp, &NsaOutputs::o_sel, &NsaOutputs::o_win, &NsaOutputs::o}) {
        EXPECT_TRUE(at::equal((have.*branch).isfinite(), (want.*branch).isfinite()));
      }
      EXPECT_FALSE(have.o.isfinite().all().item<bool>());
    }
  }
}

TEST(Decode, GradientsGoThroughTheCaches) {
  NsaConfig c = small();
  c.phi = Phi::kMlp;
  c.scale_cmp = 1.5, c.scale_win = 0.1;
  at::manual_seed(6);
  NsaInputs in = random_inputs(c, 2, 30, at::kDouble);
  const at::Tensor d_o = at::randn({2, 30, 4, 6}, at::kDouble);
  std::vector<at::Tensor> grads[3];
  size_t place = 0;
  for (const Mode mode : {Mode::kBatched, Mode::kSequential, Mode::kDecode}) {
    for (auto& [name, tensor] : differentiable(in)) {
      *tensor = tensor->detach().clone().requires_grad_(true);
    }
    run_attention(mode, in, c, {}, {4, 17}).o.backward(d_o);
    for (auto& [name, tensor] : differentiable(in)) grads[place].push_back(tensor->grad());
    ++place;
  }
  for (size_t i = 0; i < grads[0].size(); ++i) {
    expect_near(grads[1][i], grads[0][i], 1e-11);
    expect_near(grads[2][i], grads[0][i], 1e-11);
  }
}

TEST(Decode, GivenBlocksReplaceTheSelection) {
  const NsaConfig c = small();
  at::manual_seed(7);
  const NsaInputs in = random_inputs(c, 2, 40, at::kDouble);
  NsaOptions given;
  given.block_idx = at::randint(-1, 4, {2, 40, 2, 5}, at::kLong).to(at::kInt);  // any order
  const NsaOutputs want = nsa_attention(in, c, given);
  expect_same(decode_attention(in, c, given, {7, 22}), want);
  expect_same(run_attention(Mode::kSequential, in, c, given), want);
  given.block_idx = given.block_idx.narrow(3, 0, 0);  // no ids at all
  expect_same(decode_attention(in, c, given, {7, 22}), nsa_attention(in, c, given));
}

std::string ran_text(const NsaOutputs& out, const std::string& stage) {
  std::string text;
  for (const RanBackend& row : out.ran) {
    if (row.stage == stage) {
      text += row.requested + ">" + row.backend + " " + std::to_string(row.count) + " " +
              row.reason + ";";
    }
  }
  return text;
}

TEST(Decode, RecordsRequestedAndActualBackend) {
  const NsaConfig c = small();
  at::manual_seed(8);
  const NsaInputs in = random_inputs(c, 1, 20, at::kDouble);
  const DecodeOutputs out = decode_attention(in, c, {}, {8});
  EXPECT_EQ(ran_text(out, "sel_attn"), "gather>gather 1 ;gather>gather 12 ;");
  EXPECT_EQ(ran_text(out, "ranges"), "v2>v2 13 ;");
  EXPECT_EQ(ran_text(decode_attention(in, c), "sel_attn"), "gather>gather 20 ;");
  EXPECT_EQ(out.record->rows().size(), out.ran.size());
  NsaOptions packed;
  packed.sel = SelBackend::kPacked;
  EXPECT_EQ(ran_text(decode_attention(in, c, packed, {19}), "sel_attn"), "packed>packed 2 ;");
  packed.strict_backend = true;
  decode_attention(in, c, packed, {19});
  NsaOptions flash;
  flash.win = BranchBackend::kFlash;
  flash.strict_backend = true;
  EXPECT_THAT(error_of([&] { decode_attention(in, c, flash, {}); }),
              HasSubstr("nsa::win_attn: backend must be flash, got cache: a decode step"));
  EXPECT_EQ(ran_text(run_attention(Mode::kSequential, in, c, packed), "sel_attn"),
            "packed>packed 20 ;");
  NsaOptions fused;
  fused.sel = SelBackend::kFused;
  fused.cmp = fused.win = BranchBackend::kFused;
  EXPECT_THAT(ran_text(decode_attention(in, c, fused), "cmp_attn"), HasSubstr("fused>cache 20 th"));
  fused.strict_backend = true;
  LayerCache cache(c, 1, 20, at::kDouble);
  const auto first = [](const at::Tensor& x) { return x.narrow(1, 0, 1); };
  EXPECT_THAT(error_of([&] { cache.step(map_tokens(in, first), fused); }),
              HasSubstr("nsa::cmp_attn: backend must be fused, got cache: th"));
}

/// Steps by the CPU kernels against whole calls by the plain operators, on the same blocks.
TEST(Decode, CpuKernelsAgreeWithTheWholeCall) {
  at::manual_seed(31);
  NsaOptions cpu;
  cpu.sel = SelBackend::kCpu;
  cpu.cmp = cpu.win = BranchBackend::kCpu;
  cpu.keep_scores = false;
  for (const RopeMode rope : {RopeMode::kNone, RopeMode::kBeforePool})
    for (const int64_t window : {0, 10}) {
      NsaConfig c = small();
      c.rope = rope, c.window = window;
      const NsaInputs in = random_inputs(c, 2, 61, at::kFloat);
      const DecodeOutputs have = decode_attention(in, c, cpu, {0, 23}, {.page_size = 5});
      EXPECT_THAT(ran_text(have, "sel_attn"), HasSubstr("cpu>cpu"));
      NsaOptions plain;
      plain.block_idx = have.block_idx;
      const NsaOutputs want = nsa_attention(in, c, plain), chosen = nsa_attention(in, c);
      EXPECT_TRUE(at::equal(have.block_idx, chosen.block_idx));
      EXPECT_TRUE(at::equal(have.ranges, want.ranges));
      const auto near = [](const at::Tensor& a, const at::Tensor& b) {
        return at::allclose(a, b, 1e-5, 3e-6);
      };
      EXPECT_TRUE(near(have.o, want.o));
      EXPECT_TRUE(near(have.lse_cmp, want.lse_cmp));
      EXPECT_TRUE(near(have.lse_sel, want.lse_sel));
      EXPECT_TRUE(near(have.lse_win, want.lse_win));
      EXPECT_TRUE(at::equal(have.reads, decode_attention(in, c, {}, {0, 23}).reads));
    }
}

/// The kernels of a step choose blocks by themselves: given ones go to the operators, by name.
TEST(Decode, GivenBlocksOnACpuAreNotForTheKernelsOfAStep) {
  at::manual_seed(32);
  const NsaConfig c = small();
  const NsaInputs in = random_inputs(c, 2, 43, at::kFloat);
  NsaOptions cpu;
  cpu.sel = SelBackend::kCpu;
  cpu.cmp = cpu.win = BranchBackend::kCpu;
  cpu.keep_scores = false;
  const DecodeOutputs chosen = decode_attention(in, c, cpu, {0, 23});
  for (const char* stage : {"cmp_attn", "select", "sel_attn", "win_attn"})
    EXPECT_THAT(ran_text(chosen, stage), HasSubstr("cpu>cpu")) << stage;
  NsaOptions given = cpu;
  given.block_idx = chosen.block_idx.clone();
  given.block_idx.narrow(1, 20, 23).select(3, 0).fill_(0);  // other blocks than the chosen ones
  const DecodeOutputs have = decode_attention(in, c, given, {20, 20});
  NsaOptions plain;
  plain.block_idx = given.block_idx;
  const NsaOutputs want = nsa_attention(in, c, plain);
  EXPECT_TRUE(at::equal(have.block_idx, want.block_idx));
  EXPECT_TRUE(at::allclose(have.o, want.o, 1e-5, 3e-6));
  for (const char* stage : {"cmp_attn", "win_attn"})
    EXPECT_THAT(ran_text(have, stage),
                HasSubstr("cpu>cache 23 the kernels of a step on a CPU select by themselves"))
        << stage;
  // The operator of the selected branch has a kernel for any ranges; 23 steps and one prefill.
  EXPECT_THAT(ran_text(have, "sel_attn"), HasSubstr("cpu>cpu 24 "));
  EXPECT_THAT(ran_text(have, "select"), HasSubstr("given>given 24 "));
  given.strict_backend = true;
  EXPECT_THAT(error_of([&] { decode_attention(in, c, given, {20, 20}); }),
              HasSubstr("select by themselves"));
}

TEST(Decode, ScalesOfTheBranchesInEveryMode) {
  at::manual_seed(12);
  NsaConfig c = small();
  c.scale_cmp = 1.5, c.scale_sel = 0.6, c.scale_win = 0.1;
  const NsaInputs in = random_inputs(c, 2, 43, at::kDouble);
  const NsaOutputs want = nsa_attention(in, c);
  expect_same(run_attention(Mode::kSequential, in, c), want);
  for (const SelBackend backend : {SelBackend::kGather, SelBackend::kVarlen, SelBackend::kMasked}) {
    NsaOptions options;
    options.sel = backend;
    expect_same(run_attention(Mode::kDecode, in, c, options, {5, 14}), want);
  }
}

TEST(Decode, HalfSplitPairsInEveryMode) {
  at::manual_seed(14);
  for (const RopeMode rope : {RopeMode::kBeforePool, RopeMode::kBlockStart}) {
    NsaConfig c = small();
    c.rope = rope, c.rope_pairs = RopePairs::kHalfSplit;
    const NsaInputs in = random_inputs(c, 2, 43, at::kDouble);
    const NsaOutputs want = nsa_attention(in, c);
    expect_same(run_attention(Mode::kDecode, in, c, {}, {5, 14}), want);
    expect_same(run_attention(Mode::kSequential, in, c), want);
  }
}

TEST(Decode, NoWindowInEveryMode) {
  at::manual_seed(13);
  NsaConfig c = small();
  c.window = 0;
  NsaInputs in = random_inputs(c, 2, 43, at::kDouble);
  in.k_win.fill_(std::nan("")), in.v_win.fill_(std::nan(""));
  const NsaOutputs want = nsa_attention(in, c);
  EXPECT_TRUE(want.o_win.eq(0).all().item<bool>());
  for (const Mode mode : {Mode::kDecode, Mode::kSequential}) {
    const DecodeOutputs have = run_attention(mode, in, c, {}, {5, 14});
    expect_same(have, want);
    EXPECT_EQ(ran_text(have, "win_attn").find("off>off"), 0u);
    if (mode == Mode::kDecode) {
      EXPECT_TRUE(at::equal(have.reads, expected_reads(c, 2, 43)));
    }
  }
}

TEST(Decode, EveryBackendOfTheSelectedBranchGivesTheSameRows) {
  const NsaConfig c = small();
  at::manual_seed(9);
  const NsaInputs in = random_inputs(c, 2, 20, at::kDouble);
  NsaOptions options;
  options.strict_backend = true;
  const DecodeOutputs gather = decode_attention(in, c, options, {5, 0});
  for (const SelBackend backend : {SelBackend::kPacked, SelBackend::kVarlen, SelBackend::kMasked}) {
    options.sel = backend;
    const DecodeOutputs out = decode_attention(in, c, options, {5, 0});
    EXPECT_TRUE(at::allclose(out.o, gather.o, 1e-12, 1e-13)) << to_string(backend);
    EXPECT_TRUE(at::allclose(out.lse_sel, gather.lse_sel, 1e-12, 1e-13)) << to_string(backend);
    EXPECT_TRUE(at::equal(out.reads, gather.reads)) << to_string(backend);
  }
}

TEST(Decode, SequentialPrefillBySwitch) {
  const NsaConfig c = small();
  at::manual_seed(9);
  const NsaInputs in = random_inputs(c, 2, 30, at::kDouble);
  const SwitchSet off = SwitchSet::from({}, {{"NSA_PREFILL_BATCHED", "0"}}, {});
  const DecodeOutputs out = decode_attention(in, c, NsaOptions::from(off), {11, 25});
  expect_same(out, nsa_attention(in, c));
  EXPECT_EQ(ran_text(out, "win_attn"), "plain>plain 25 ;plain>cache 19 ;");
}

TEST(Decode, CountsDroppedIdsOfCountedTokens) {
  const NsaConfig c = small();
  const NsaInputs in = random_inputs(c, 2, 20);
  NsaOptions given;
  given.strict_asserts = true;
  given.block_idx = at::zeros({2, 20, 2, 1}, at::kInt);
  given.block_idx.select(1, 3).fill_(7);
  given.block_idx[1][12].fill_(-5);
  for (const std::vector<int64_t>& prefill : {std::vector<int64_t>{0, 0}, {2, 15}, {20, 20}}) {
    const DecodeOutputs out = decode_attention(in, c, given, prefill);
    EXPECT_EQ(out.dropped_ids.item<int64_t>(), 6);
  }
}

TEST(Decode, GivenIdsAreASetInEveryMode) {
  at::manual_seed(30);
  const NsaConfig c = small();
  const NsaInputs in = random_inputs(c, 2, 40, at::kDouble);
  const NsaOutputs own = nsa_attention(in, c);
  NsaOptions given;
  for (const at::Tensor& ids :
       {own.block_idx.flip(-1), own.block_idx.to(at::kLong),
        at::cat({own.block_idx.flip(-1), at::full_like(own.block_idx, 99), own.block_idx}, -1)}) {
    given.block_idx = ids;
    for (const Mode mode : {Mode::kBatched, Mode::kSequential, Mode::kDecode}) {
      const DecodeOutputs out = run_attention(mode, in, c, given, {0, 13});
      EXPECT_LT((out.o - own.o).abs().max().item<double>(), 1e-12) << to_string(mode);
      EXPECT_EQ(out.dropped_ids.item<int64_t>(), ids.eq(99).sum().item<int64_t>());
    }
  }
  given.block_idx = own.block_idx.to(at::kFloat);
  for (const Mode mode : {Mode::kSequential, Mode::kDecode})
    EXPECT_ANY_THROW(run_attention(mode, in, c, given)) << to_string(mode);
}

TEST(Decode, NoSequencesAndNoTokens) {
  const NsaConfig c = small();
  for (const auto& [batch, tokens] : {std::pair{0, 5}, std::pair{2, 0}, std::pair{0, 0}}) {
    const NsaInputs in = random_inputs(c, batch, tokens);
    for (const Mode mode : {Mode::kSequential, Mode::kDecode}) {
      const DecodeOutputs out = run_attention(mode, in, c);
      EXPECT_EQ(out.o.sizes(), at::IntArrayRef({batch, tokens, 4, 6}));
      EXPECT_EQ(out.block_idx.sizes(), at::IntArrayRef({batch, tokens, 2, 3}));
      EXPECT_EQ(out.k_cmp.sizes(), nsa_attention(in, c).k_cmp.sizes());
    }
  }
}

TEST(Modes, NamesAndBadArguments) {
  EXPECT_EQ(parse_mode("sequential"), Mode::kSequential);
  EXPECT_EQ(to_string(parse_mode("decode")), "decode");
  EXPECT_THAT(error_of_any([] { parse_mode("batch"); }),
              HasSubstr("mode must be one of batched, sequential, decode, got 'batch'"));
  const NsaConfig c = small();
  const NsaInputs in = random_inputs(c, 2, 9);
  EXPECT_THAT(error_of([&] { decode_attention(in, c, {}, {1}); }),
              HasSubstr("nsa::decode_attention: prefill must be 2 lengths, one a sequence, got 1"));
  EXPECT_THAT(error_of([&] { decode_attention(in, c, {}, {1, 10}); }),
              HasSubstr("prefill must be at most S = 9, got 10"));
  EXPECT_THAT(error_of([&] { decode_attention(in, c, {}, {1, -1}); }),
              HasSubstr("prefill must be at least 0, got -1"));
  NsaInputs packed = in;
  packed.cu_seqlens = at::zeros({1}, at::kInt);
  for (const Mode mode : {Mode::kSequential, Mode::kDecode}) {
    EXPECT_THAT(error_of([&] { run_attention(mode, packed, c); }),
                HasSubstr("cu_seqlens must be undefined"));
  }
}

}  // namespace
}  // namespace nsa
