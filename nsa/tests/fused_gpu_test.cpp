// The project's own kernels against fp64 on the CPU; part of backends_gpu_test.
#include "nsa/backend/kernel_code.h"
#include "nsa/diagnostics/run_record.h"
#include "nsa/ops/common/check.h"
#include "nsa/ops/compressed/cmp_attn.h"
#include "nsa/ops/select/ranges.h"
#include "nsa/ops/selected/sel_attn.h"
#include "nsa/ops/window/win_attn.h"
#include "nsa/tests/backends_gpu_testing.h"

namespace nsa {
namespace {

using ::testing::HasSubstr;

/// Groups that the selected branch splits: into 2, 2 and 4.
constexpr FusedSizes kLargeGroups[] = {{32, 128, 128}, {24, 64, 64}, {64, 192, 128}};

TEST(FusedOnCuda, SelectedBranchAgreesWithFp64) {
  at::manual_seed(10);
  const Call call = [](const Inputs& x) {
    return sel_attn(x.q, x.k, x.v, x.ranges, 0, {SelBackend::kFused, true, x.q.is_cuda()});
  };
  const Call reference = [](const Inputs& x) {
    return sel_attn(x.q, x.k, x.v, x.ranges, 0, {SelBackend::kMasked});
  };
  for (const auto& [group, dk, dv] : kFusedSizes) {
    for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
      SCOPED_TRACE(std::to_string(group) + " heads, " + std::to_string(dk));
      expect_agreement(draw(dtype, 170, group, dk, dv), dtype, call, reference);
      expect_agreement(draw(dtype, 1, group, dk, dv), dtype, call, reference);
    }
  }
}

TEST(FusedOnCuda, LargeGroupsAreSplitInTheSelectedBranch) {
  at::manual_seed(20);
  const Call reference = [](const Inputs& x) {
    return sel_attn(x.q, x.k, x.v, x.ranges, 0, {SelBackend::kMasked});
  };
  for (const auto& [group, dk, dv] : kLargeGroups) {
    SCOPED_TRACE(std::to_string(group) + " heads, " + std::to_string(dk));
    const auto record = c10::make_intrusive<RunRecord>();
    const RunRecordScope scope(record);
    const Call call = [](const Inputs& x) {
      return sel_attn(x.q, x.k, x.v, x.ranges, 0, {SelBackend::kFused, true, true});
    };
    expect_agreement(draw(at::kBFloat16, 170, group, dk, dv), at::kBFloat16, call, reference);
    EXPECT_THAT(ran(record, "sel_attn"),
                HasSubstr(group == 64 ? "each group in 4" : "each group in 2"));
  }
}

/// Where probabilities are asked for the kernel computes the branch all the same; they are those of
/// fp64.
TEST(FusedOnCuda, ProbabilitiesOfLargeGroupsComeBesideTheKernel) {
  at::manual_seed(21);
  for (const auto& [group, dk, dv] : kLargeGroups) {
    SCOPED_TRACE(std::to_string(group) + " heads");
    NsaConfig c;
    c.num_heads = 2 * group;
    c.num_kv_heads = 2;
    c.qk_head_dim = dk;
    c.v_head_dim = dv;
    c.validate();
    const Inputs x = draw(at::kBFloat16, 300, group, dk, dv);
    const auto k = [&](const at::Tensor& t) { return t.narrow(1, 0, c.num_compressed(300)); };
    const auto fp64 = [](const at::Tensor& t) { return t.to(at::kCPU, at::kDouble); };
    const auto cuda = [](const at::Tensor& t) { return t.to(at::kCUDA); };
    const auto record = c10::make_intrusive<RunRecord>();
    const RunRecordScope scope(record);
    const CmpAttnResult have =
        cmp_attn(cuda(x.q), cuda(k(x.k)), cuda(k(x.v)), c, 0, {BranchBackend::kFused, true});
    const CmpAttnResult want = cmp_attn(fp64(x.q), fp64(k(x.k)), fp64(k(x.v)), c);
    EXPECT_THAT(ran(record, "cmp_attn"), testing::StartsWith("fused"));
    EXPECT_LE(distance(fp64(have.out), want.out), 4e-2);
    EXPECT_LE(distance(fp64(have.group_probs), want.group_probs), 1e-5);
  }
}

/// NSA_KERNELS=sm80 for the length of a test.
struct CodeOfSm80 {
  CodeOfSm80() { want_kernels("sm80", at::kCUDA); }
  ~CodeOfSm80() { want_kernels("auto", at::kCUDA); }
};

/// nsa-tests-cuda-sm80 depends on this: the requested code runs, and the record names it.
TEST(FusedOnCuda, TheCodeOfSm80RunsWhereItIsRequested) {
  const CodeOfSm80 wanted;
  at::manual_seed(15);
  const Inputs in = draw(at::kBFloat16, 170, 4, 128, 128);
  const Call window = [](const Inputs& x) {
    return win_attn(x.q, x.k, x.v, 64, 0,
                    {x.q.is_cuda() ? BranchBackend::kFused : BranchBackend::kPlain, true});
  };
  const Call selected = [](const Inputs& x) {
    const bool fused = x.q.is_cuda();
    return sel_attn(x.q, x.k, x.v, x.ranges, 0,
                    {fused ? SelBackend::kFused : SelBackend::kMasked, true, fused});
  };
  const auto record = c10::make_intrusive<RunRecord>();
  {
    const RunRecordScope scope(record);
    expect_agreement(in, at::kBFloat16, window, window);
    expect_agreement(in, at::kBFloat16, selected, selected);
  }
  const auto seen = [&](const std::string& stage) {
    for (const RanBackend& row : record->rows())
      if (row.stage == stage && row.backend == "fused" && row.detail == "sm_80") return true;
    return false;
  };
  for (const char* stage : {"win_attn", "win_attn.backward", "sel_attn.backward"})
    EXPECT_TRUE(seen(stage)) << stage;
}

/// Chosen blocks through `fused`, against `gather` in fp32; the order in the record.
void expect_order(int64_t tokens, int64_t group, int64_t kv_heads, int64_t blocks,
                  const std::string& order) {
  at::manual_seed(14);
  const auto normal = [&](int64_t heads) {
    return at::randn({1, tokens, heads, 64}, at::TensorOptions(at::kCUDA)).to(at::kBFloat16);
  };
  const at::Tensor t = at::arange(tokens, at::TensorOptions(at::kCUDA).dtype(at::kLong));
  const at::Tensor ids = std::get<0>(
      at::randint(0, tokens / 64, {1, tokens, kv_heads, blocks}, t.options().dtype(at::kInt))
          .sort(-1));
  const Inputs in{normal(group * kv_heads), normal(kv_heads), normal(kv_heads),
                  block_ranges(RangesVersion::kV2, ids, t, 64)};
  const at::Tensor d_out = normal(group * kv_heads);
  const auto with = [](const SelAttnOptions& options) {
    return [options](const Inputs& x) { return sel_attn(x.q, x.k, x.v, x.ranges, 0, options); };
  };
  const auto record = c10::make_intrusive<RunRecord>();
  std::vector<at::Tensor> have;
  {
    const RunRecordScope scope(record);
    have = run(in, at::kBFloat16, at::kCUDA, with({SelBackend::kFused, true, true, 64}), d_out);
  }
  EXPECT_EQ(ran(record, "sel_attn"), "fused " + order);
  EXPECT_EQ(ran(record, "sel_attn.backward"), "fused ");
  const std::vector<at::Tensor> want =
      run(in, at::kFloat, at::kCUDA, with({SelBackend::kGather}), d_out);
  for (size_t i = 0; i < have.size(); ++i) EXPECT_LE(distance(have[i], want[i]), 4e-2) << i;
}

TEST(FusedOnCuda, SelectedBranchTakesTheFasterOrderAndReportsIt) {
  expect_order(300, 1, 4, 2, "by rows");
  const std::string order_of_keys = "order of keys";
  expect_order(4100, 1, 4, 6, order_of_keys);
  expect_order(600, 16, 1, 4, "whole tiles");
  expect_order(4100, 4, 4, 6, "whole tiles below 1152, then " + order_of_keys);
}

// A bound on the tiles of a row is what the backward kernel works in; too many go another way.
TEST(FusedOnCuda, SelectedBackwardOfUnboundedRangesIsRecordedAsGather) {
  at::manual_seed(15);
  const Inputs in = draw(at::kBFloat16, 64 * 130, 1, 64, 64);
  const auto record = c10::make_intrusive<RunRecord>();
  const RunRecordScope scope(record);
  Inputs few = in;
  few.ranges =
      at::stack({at::arange(64 * 130, at::kInt), at::arange(64 * 130, at::kInt).add(3)}, -1)
          .view({1, -1, 1, 1, 2})
          .expand({2, -1, 2, 1, 2});
  const Call call = [](const Inputs& x) {
    return sel_attn(x.q, x.k, x.v, x.ranges, 0, {SelBackend::kFused});
  };
  run(few, at::kBFloat16, at::kCUDA, call, at::randn({2, 64 * 130, 2, 64}));
  EXPECT_EQ(last_row(record).stage, "sel_attn.backward");
  EXPECT_EQ(last_row(record).backend, "gather");
  EXPECT_THAT(last_row(record).reason, HasSubstr("more than 128 key tiles a row"));
}

TEST(FusedOnCuda, WindowAgreesWithFp64) {
  at::manual_seed(11);
  for (const auto& [s, window] : {std::pair{1, 4}, std::pair{33, 1}, std::pair{170, 16},
                                  std::pair{300, 129}, std::pair{130, 500}}) {
    const int64_t w = window;
    const auto with = [w](BranchBackend backend) {
      return [w, backend](const Inputs& x) {
        return win_attn(x.q, x.k, x.v, w, 0, {backend, /*strict=*/x.q.is_cuda()});
      };
    };
    for (const auto& [group, dk, dv] : kFusedSizes) {
      SCOPED_TRACE("S " + std::to_string(s) + " window " + std::to_string(window) + " group " +
                   std::to_string(group));
      const at::ScalarType dtype = group % 2 ? at::kHalf : at::kBFloat16;
      expect_agreement(draw(dtype, s, group, dk, dv), dtype, with(BranchBackend::kFused),
                       with(BranchBackend::kPlain));
    }
  }
}

TEST(FusedOnCuda, CompressedGradientsAgreeWithFp64) {
  at::manual_seed(14);
  for (const auto& [group, dk, dv] : kFusedSizes) {
    for (const int64_t s : {20, 150, 1100}) {
      SCOPED_TRACE(std::to_string(group) + " heads, S " + std::to_string(s));
      NsaConfig c;
      c.num_heads = 2 * group;
      c.num_kv_heads = 2;
      c.qk_head_dim = dk;
      c.v_head_dim = dv;
      c.validate();
      // A loss through lse as well: it is added to every column.
      const auto with_lse = [](const at::Tensor& out, const at::Tensor& lse) {
        const at::Tensor finite = lse.masked_fill(lse.isinf(), 0.0).to(out.scalar_type());
        return std::pair{out + finite.unsqueeze(-1), lse.detach()};
      };
      const Call call = [&](const Inputs& x) {
        const CmpSelectResult r = cmp_attn_select(x.q, x.k, x.v, c);
        return with_lse(r.out, r.lse);
      };
      const Call reference = [&](const Inputs& x) {
        const CmpAttnResult r = cmp_attn(x.q, x.k, x.v, c);
        return with_lse(r.out, r.lse);
      };
      const at::ScalarType dtype = group % 2 ? at::kHalf : at::kBFloat16;
      Inputs in = draw(dtype, s, group, dk, dv);
      in.k = in.k.narrow(1, 0, c.num_compressed(s));
      in.v = in.v.narrow(1, 0, c.num_compressed(s));
      expect_agreement(in, dtype, call, reference);
    }
  }
}

/// What runs is the kernel of the next larger dims, and every row of the record names them.
TEST(FusedOnCuda, PaddedHeadsAreRecorded) {
  at::manual_seed(17);
  const Inputs in = draw(at::kBFloat16, 100, 4, 96, 80);
  const auto record = c10::make_intrusive<RunRecord>();
  {
    const RunRecordScope scope(record);
    for (const Call& call : {Call([](const Inputs& x) {
                               return win_attn(x.q, x.k, x.v, 8, 0, {BranchBackend::kFused, true});
                             }),
                             Call([](const Inputs& x) {
                               return sel_attn(x.q, x.k, x.v, x.ranges, 0,
                                               {SelBackend::kFused, true, true});
                             })})
      run(in, at::kBFloat16, at::kCUDA, call, at::randn({2, 100, 8, 80}));
  }
  for (const char* stage : {"win_attn", "win_attn.backward", "sel_attn", "sel_attn.backward"}) {
    EXPECT_THAT(ran(record, stage), testing::StartsWith("fused ")) << stage;
    EXPECT_THAT(ran(record, stage), HasSubstr("padded to 128/128")) << stage;
  }
}

TEST(FusedOnCuda, HeadsAboveAllKernelsAreNamed) {
  const Inputs in = draw(at::kBFloat16, 40, 2, 320, 320);
  const auto record = c10::make_intrusive<RunRecord>();
  const RunRecordScope scope(record);
  win_attn(in.q.to(at::kCUDA), in.k.to(at::kCUDA), in.v.to(at::kCUDA), 8, 0,
           {BranchBackend::kFused});
  EXPECT_EQ(last_row(record).backend, "plain");
  EXPECT_EQ(last_row(record).reason,
            "head dims dk/dv are above 256/256, the largest that kernels have");
}

TEST(FusedOnCuda, GradientsAreComputedByTheKernelAndRecorded) {
  const auto record = c10::make_intrusive<RunRecord>();
  const RunRecordScope scope(record);
  const Inputs in = draw(at::kHalf, 50, 2, 64, 64);
  const Call call = [](const Inputs& x) {
    return win_attn(x.q, x.k, x.v, 8, 0, {BranchBackend::kFused, true});
  };
  run(in, at::kHalf, at::kCUDA, call, at::randn({2, 50, 4, 64}));
  EXPECT_EQ(last_row(record).stage, "win_attn.backward");
  EXPECT_EQ(last_row(record).backend, "fused");
}

TEST(FusedOnCuda, GradientsOfBadValuesAreThoseOfFp64) {
  at::manual_seed(15);
  const auto window = [](BranchBackend backend) {
    return [backend](const Inputs& x) { return win_attn(x.q, x.k, x.v, 20, 0, {backend, true}); };
  };
  for (const double bad : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    Inputs in = draw(at::kBFloat16, 300, 4, 64, 64);
    const at::Tensor d_out = at::randn({2, 300, 8, 64}, at::kDouble).to(at::kBFloat16);
    in.v.select(1, 150).fill_(bad);
    in.k.select(1, 220).fill_(NAN);
    in.q.select(1, 20).fill_(NAN);
    const auto have = run(in, at::kBFloat16, at::kCUDA, window(BranchBackend::kFused), d_out);
    const auto want = run(in, at::kDouble, at::kCPU, window(BranchBackend::kPlain), d_out);
    for (size_t i = 2; i < have.size(); ++i) {  // d_q, d_k, d_v
      const at::Tensor finite = want[i].isfinite();
      EXPECT_TRUE(at::equal(have[i].isfinite(), finite)) << "tensor " << i;
      EXPECT_TRUE(finite.any().item<bool>() && !finite.all().item<bool>()) << "tensor " << i;
      EXPECT_LE(distance(have[i].masked_fill(~finite, 0.0), want[i].masked_fill(~finite, 0.0)),
                4e-2)
          << "tensor " << i;
    }
  }
}

TEST(FusedOnCuda, ABadGradientReachesItsOwnRowAndKeysOnly) {
  at::manual_seed(16);
  const Inputs in = draw(at::kBFloat16, 300, 4, 64, 64);
  at::Tensor d_out = at::randn({2, 300, 8, 64}, at::kDouble).to(at::kBFloat16);
  d_out.select(1, 70).fill_(NAN);
  const Call call = [](const Inputs& x) {
    return win_attn(x.q, x.k, x.v, 20, 0, {BranchBackend::kFused, true});
  };
  const auto have = run(in, at::kBFloat16, at::kCUDA, call, d_out);
  const at::Tensor token = at::arange(300).view({1, 300, 1, 1});
  const at::Tensor own = token.eq(70), keys = token.ge(51).logical_and(token.le(70));
  EXPECT_TRUE(at::equal(have[2].isnan(), own.expand_as(have[2])));
  EXPECT_TRUE(at::equal(have[3].isnan(), keys.expand_as(have[3])));
  EXPECT_TRUE(at::equal(have[4].isnan(), keys.expand_as(have[4])));
}

TEST(FusedOnCuda, BadValuesReachOnlyRowsThatAttendThem) {
  at::manual_seed(13);
  for (const auto& [bad, dim] :
       {std::pair{static_cast<double>(NAN), 64}, std::pair{static_cast<double>(INFINITY), 64},
        std::pair{static_cast<double>(NAN), 96}}) {
    const Inputs in = draw(at::kBFloat16, 300, 4, dim, dim);
    const auto windows = [&](const Inputs& x) {
      return win_attn(x.q.to(at::kCUDA), x.k.to(at::kCUDA), x.v.to(at::kCUDA), 20, 0,
                      {BranchBackend::kFused, true})
          .first.cpu();
    };
    const at::Tensor healthy = windows(in);
    Inputs poisoned = in;
    poisoned.k = in.k.clone();
    poisoned.v = in.v.clone();
    poisoned.v.select(1, 150).fill_(bad);
    poisoned.k.select(1, 220).fill_(NAN);
    const at::Tensor seen = windows(poisoned);
    for (int64_t t = 0; t < 300; ++t) {
      const bool attends = (t >= 150 && t < 170) || (t >= 220 && t < 240);
      const at::Tensor row = seen.select(1, t);
      EXPECT_EQ(row.isfinite().any().item<bool>(), !attends) << t;
      EXPECT_TRUE(attends || at::equal(row, healthy.select(1, t))) << t;
    }
  }
}

TEST(FusedOnCuda, RefusesOrRecordsUnsupportedSizes) {
  const Inputs in = draw(at::kFloat, 40, 2, 64, 64);
  const auto call = [&](bool strict) {
    return win_attn(in.q.to(at::kCUDA), in.k.to(at::kCUDA), in.v.to(at::kCUDA), 8, 0,
                    {BranchBackend::kFused, strict});
  };
  EXPECT_ANY_THROW(call(true));
  const auto record = c10::make_intrusive<RunRecord>();
  const RunRecordScope scope(record);
  call(false);
  EXPECT_EQ(last_row(record).requested, "fused");
  EXPECT_EQ(last_row(record).backend, "plain");
  EXPECT_THAT(last_row(record).reason, HasSubstr("bfloat16 and half only"));
}

}  // namespace
}  // namespace nsa
