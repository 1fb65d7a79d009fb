// The backends of the branches on CUDA, where the library's fused attention applies. Ends with 77
// (skipped) where there is no CUDA device.
#include <ATen/Context.h>
#include <cuda_runtime_api.h>

#include "nsa/diagnostics/run_record.h"
#include "nsa/layer/nsa_attention.h"
#include "nsa/layer/random_inputs.h"
#include "nsa/ops/common/check.h"
#include "nsa/ops/common/test_util.h"
#include "nsa/ops/selected/sel_attn.h"
#include "nsa/ops/window/win_attn.h"
#include "nsa/tests/backends_gpu_testing.h"

namespace nsa {
namespace {

using ::testing::HasSubstr;

constexpr SelBackend kSelBackends[] = {SelBackend::kGather, SelBackend::kPacked,
                                       SelBackend::kVarlen, SelBackend::kMasked};

TEST(SelAttnOnCuda, EveryBackendAndTypeAgreesWithFp64) {
  at::manual_seed(1);
  for (const SelBackend backend : kSelBackends) {
    const Call call = [&](const Inputs& x) {
      return sel_attn(x.q, x.k, x.v, x.ranges, 0, {backend});
    };
    const Call reference = [](const Inputs& x) {
      return sel_attn(x.q, x.k, x.v, x.ranges, 0, {SelBackend::kMasked});
    };
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
      SCOPED_TRACE(to_string(backend) + " " + c10::toString(dtype));
      expect_agreement(draw(dtype, 150, 3, 64, 64), dtype, call, reference);
      expect_agreement(draw(dtype, 70, 1, 24, 20), dtype, call, reference);
      expect_agreement(draw(dtype, 33, 16, 192, 128), dtype, call, reference);
    }
  }
}

/// Whatever a program allows the library's products.
TEST(SelAttnOnCuda, Fp32IsNotRoundedToTf32) {
  struct AllowedTf32 {
    bool before = at::globalContext().allowTF32CuBLAS();
    AllowedTf32() { at::globalContext().setAllowTF32CuBLAS(true); }
    ~AllowedTf32() { at::globalContext().setAllowTF32CuBLAS(before); }
  };
  at::manual_seed(3);
  const Inputs in = draw(at::kFloat, 150, 3, 64, 64);
  const at::Tensor d_out = at::randn({2, 150, 6, 64});
  for (const SelBackend backend : {SelBackend::kGather, SelBackend::kMasked}) {
    const Call call = [&](const Inputs& x) {
      return sel_attn(x.q, x.k, x.v, x.ranges, 0, {backend});
    };
    const std::vector<at::Tensor> want = run(in, at::kFloat, at::kCUDA, call, d_out);
    const AllowedTf32 allowed;
    const std::vector<at::Tensor> have = run(in, at::kFloat, at::kCUDA, call, d_out);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(at::equal(have[i], want[i])) << to_string(backend) << ": tensor " << i;
  }
}

TEST(SelAttnOnCuda, VarlenIsOneCallOfTheLibraryInHalfPrecision) {
  at::manual_seed(2);
  const auto record = c10::make_intrusive<RunRecord>(/*audit=*/true);
  const RunRecordScope scope(record);
  const Inputs in = draw(at::kBFloat16, 90, 4, 64, 64);
  const Call call = [](const Inputs& x) {
    return sel_attn(x.q, x.k, x.v, x.ranges, 0, {SelBackend::kVarlen});
  };
  run(in, at::kBFloat16, at::kCUDA, call, at::randn({2, 90, 8, 64}));
  EXPECT_EQ(last_row(record).detail, "flash");
  const std::vector<SdpaCall> calls = record->sdpa_calls();
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].op, "_flash_attention_forward");
  EXPECT_EQ(calls[1].op, "_flash_attention_backward");
  EXPECT_GT(calls[0].sequences, 200);
}

// Its sequences hold attended keys only, so rows elsewhere keep their bits.
TEST(SelAttnOnCuda, VarlenKeepsTheBitsOfRowsThatAttendNoNonFiniteValue) {
  at::manual_seed(2);
  const Inputs in = on_cuda(draw(at::kBFloat16, 90, 4, 64, 64));
  const auto varlen = [](const Inputs& x) {
    const auto record = c10::make_intrusive<RunRecord>();
    const RunRecordScope scope(record);
    const at::Tensor out = sel_attn(x.q, x.k, x.v, x.ranges, 0, {SelBackend::kVarlen}).first;
    EXPECT_EQ(last_row(record).detail, "flash");
    return out;
  };
  Inputs bad = in;
  bad.v = in.v.clone();
  bad.v[0][80][0][0].fill_(NAN);
  const at::Tensor good_out = varlen(in), bad_out = varlen(bad);
  EXPECT_TRUE(at::equal(good_out[1], bad_out[1]));
  EXPECT_TRUE(at::equal(good_out[0].slice(0, 0, 80), bad_out[0].slice(0, 0, 80)));
  EXPECT_TRUE(bad_out.isnan().any().item<bool>());
}

TEST(SelAttnOnCuda, PackedWorkspaceGivesTheBitsOfTheSafeVariant) {
  at::manual_seed(3);
  const Inputs in = draw(at::kHalf, 200, 2, 64, 64);
  const Inputs x = on_cuda(in);
  const auto workspace = sel_attn(x.q, x.k, x.v, x.ranges, 0, {SelBackend::kPacked, false});
  const auto safe = sel_attn(x.q, x.k, x.v, x.ranges, 0, {SelBackend::kPacked, true});
  EXPECT_TRUE(at::equal(workspace.first, safe.first));
  EXPECT_TRUE(at::equal(workspace.second, safe.second));
}

TEST(WinAttnOnCuda, FlashAgreesWithFp64AndReportsIt) {
  at::manual_seed(4);
  for (const auto& [s, window] : {std::pair{130, 1}, std::pair{130, 17}, std::pair{130, 129},
                                  std::pair{130, 500}, std::pair{1, 4}}) {
    const int64_t w = window;
    const auto with = [w](BranchBackend backend) {
      return [w, backend](const Inputs& x) {
        return win_attn(x.q, x.k, x.v, w, 0, {backend, /*strict=*/x.q.is_cuda()});
      };
    };
    for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
      SCOPED_TRACE("S " + std::to_string(s) + " window " + std::to_string(window));
      expect_agreement(draw(dtype, s, 3, 64, 64), dtype, with(BranchBackend::kFlash),
                       with(BranchBackend::kPlain));
    }
  }
}

TEST(WinAttnOnCuda, FlashAtAFirstPositionSeesTheKeysBefore) {
  at::manual_seed(5);
  const Inputs in = draw(at::kHalf, 100, 2, 64, 64);
  const auto tail = [&](at::Device device, at::ScalarType dtype, const BranchOptions& options) {
    const auto on = [&](const at::Tensor& x) { return x.to(device, dtype); };
    return win_attn(on(in.q).narrow(1, 60, 30), on(in.k), on(in.v), 20, 60, options);
  };
  const auto have = tail(at::kCUDA, at::kHalf, {BranchBackend::kFlash, true});
  const auto want = tail(at::kCPU, at::kDouble, {});
  EXPECT_LE(distance(have.first.to(at::kCPU, at::kDouble), want.first), 5e-3);
  EXPECT_LE(distance(have.second.to(at::kCPU, at::kDouble), want.second), 1e-4);
}

TEST(WinAttnOnCuda, GradientOfLseUsesThePlainBackend) {
  at::manual_seed(6);
  const auto record = c10::make_intrusive<RunRecord>();
  const RunRecordScope scope(record);
  const Inputs in = draw(at::kHalf, 40, 2, 64, 64);
  std::vector<at::Tensor> grads;
  for (const auto& [device, dtype, backend] :
       {std::tuple{at::kCUDA, at::kHalf, BranchBackend::kFlash},
        std::tuple{at::kCPU, at::kDouble, BranchBackend::kPlain}}) {
    const at::Tensor k = in.k.to(device, dtype).detach().clone().requires_grad_(true);
    const auto [out, lse] =
        win_attn(in.q.to(device, dtype), k, in.v.to(device, dtype), 9, 0, {backend});
    (out.sum() + lse.sum()).backward();
    grads.push_back(k.grad().to(at::kCPU, at::kDouble));
  }
  EXPECT_LE(distance(grads[0], grads[1]), 5e-3);
  bool seen = false;
  for (const RanBackend& row : record->rows()) seen |= row.stage == "win_attn.backward";
  EXPECT_TRUE(seen);
}

TEST(WinAttnOnCuda, CudnnIsCausalAttentionWithoutAGradient) {
  at::manual_seed(7);
  const Inputs in = draw(at::kHalf, 96, 3, 64, 64);
  const auto on = [](const at::Tensor& x) { return x.to(at::kCUDA); };
  const auto have =
      win_attn(on(in.q), on(in.k), on(in.v), 96, 0, {BranchBackend::kCudnn, /*strict=*/true});
  const auto want = win_attn(in.q.to(at::kDouble), in.k.to(at::kDouble), in.v.to(at::kDouble), 96);
  EXPECT_LE(distance(have.first.to(at::kCPU, at::kDouble), want.first), 5e-3);
  EXPECT_LE(distance(have.second.to(at::kCPU, at::kDouble), want.second), 1e-4);
  EXPECT_THAT(error_of([&] {
                win_attn(on(in.q).requires_grad_(true), on(in.k), on(in.v), 96, 0,
                         {BranchBackend::kCudnn, /*strict=*/true});
              }),
              HasSubstr("it is used without a gradient only"));
}

TEST(WinAttnOnCuda, RowsWithoutANonFiniteValueKeepTheirBitsOfFlash) {
  const auto record = c10::make_intrusive<RunRecord>();
  const RunRecordScope scope(record);
  const Inputs in = on_cuda(draw(at::kHalf, 40, 2, 64, 64));
  const auto window = [&](const at::Tensor& v) {
    return win_attn(in.q, in.k, v, 5, 0, {BranchBackend::kFlash, /*strict=*/true}).first;
  };
  const at::Tensor good_out = window(in.v);
  at::Tensor v = in.v.clone();
  v.narrow(1, 30, 1).fill_(NAN);
  const at::Tensor out = window(v);
  EXPECT_EQ(last_row(record).stage, "win_attn.non_finite_rows");
  EXPECT_EQ(last_row(record).backend, "plain");
  EXPECT_TRUE(at::equal(out.narrow(1, 0, 30), good_out.narrow(1, 0, 30)));
  EXPECT_TRUE(at::equal(out.narrow(1, 35, 5), good_out.narrow(1, 35, 5)));
  EXPECT_TRUE(out.narrow(1, 30, 5).isnan().all().item<bool>());
}

TEST(LayerOnCuda, PackedDocumentsEqualSeparateCallsOnEveryBackend) {
  NsaConfig c = m7c_125m();
  c.window = 40, c.top_n = 4;
  const std::vector<int32_t> offsets{0, 0, 1, 20, 150, 290, 700};
  for (const SelBackend backend : kSelBackends) {
    at::manual_seed(8);
    NsaInputs in =
        random_inputs(c, 1, offsets.back(), at::TensorOptions(at::kCUDA).dtype(at::kDouble),
                      /*packed=*/true);
    in.cu_seqlens = at::tensor(offsets, at::kInt).to(at::kCUDA);
    NsaOptions options;
    options.sel = backend;
    const NsaOutputs packed = nsa_attention(in, c, options);
    for (size_t doc = 0; doc + 1 < offsets.size(); ++doc) {
      const int64_t begin = offsets[doc], length = offsets[doc + 1] - begin;
      NsaInputs own = in;
      own.cu_seqlens = at::Tensor();
      for (auto& [name, tensor] : differentiable(own)) {
        *tensor = tensor->narrow(0, begin, length).unsqueeze(0);
      }
      const at::Tensor want = nsa_attention(own, c, options).o.squeeze(0);
      EXPECT_TRUE(at::allclose(packed.o.narrow(0, begin, length), want, 1e-11, 1e-11));
    }
  }
}

/// More than 2^31 elements in q and out: the last rows equal a call on these rows alone.
TEST(Huge, MoreThanTwoToThe31ElementsWork) {
  constexpr int64_t kTokens = (int64_t{1} << 19) + 1000, kHeads = 72, kTail = 200;
  const size_t free_bytes = [] {
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    return free;
  }();
  if (free_bytes < (size_t{60} << 30)) GTEST_SKIP() << "needs 60 GiB of device memory";
  at::manual_seed(9);
  const auto options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const at::Tensor q = at::randn({1, kTokens, kHeads, 64}, options);
  const at::Tensor k = at::randn({1, kTokens, 1, 64}, options);
  const at::Tensor v = at::randn({1, kTokens, 1, 64}, options);
  ASSERT_GT(q.numel(), int64_t{1} << 31);
  const int64_t first = kTokens - kTail;
  const at::Tensor tail = q.narrow(1, first, kTail).contiguous();
  const auto expect_tail = [&](const at::Tensor& all, const at::Tensor& alone, const char* what) {
    EXPECT_LE(distance(all.narrow(1, first, kTail).to(at::kCPU, at::kDouble),
                       alone.to(at::kCPU, at::kDouble)),
              2e-2)
        << what;
  };
  for (const BranchBackend backend : {BranchBackend::kPlain, BranchBackend::kFlash}) {
    expect_tail(win_attn(q, k, v, 64, 0, {backend}).first,
                win_attn(tail, k, v, 64, first, {backend}).first, "window");
  }
  const at::Tensor t = at::arange(kTokens, q.options().dtype(at::kInt)).view({1, -1, 1, 1});
  const at::Tensor ranges = at::stack({t.sub(16), t.add(1)}, -1);
  for (const SelBackend backend : {SelBackend::kGather, SelBackend::kPacked, SelBackend::kVarlen}) {
    expect_tail(
        sel_attn(q, k, v, ranges, 0, {backend, /*safe_pack=*/false}).first,
        sel_attn(tail, k, v, ranges.narrow(1, first, kTail).contiguous(), first, {backend}).first,
        to_string(backend).c_str());
  }
}

}  // namespace
}  // namespace nsa
