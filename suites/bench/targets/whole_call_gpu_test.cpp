// The whole operator on the kernels: how many launches a call is, whether a CUDA graph of it gives
// the bits of the call, whether repeats do. Ends with 77 (skipped) where there is no CUDA device.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdio>

#include "nsa/layer/nsa_attention.h"
#include "nsa/layer/random_inputs.h"
#include "suites/bench/targets/repeated_bits.h"
#include "suites/instrument/cupti/captured_call.h"
#include "suites/instrument/host_syncs.h"

namespace suites {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

nsa::NsaConfig paper() {
  nsa::NsaConfig c;
  c.num_heads = 64;
  c.num_kv_heads = 4;
  c.qk_head_dim = 192;
  c.v_head_dim = 128;
  c.gate = nsa::GateActivation::kSigmoid;
  return c;
}

struct Size {
  const char* name;
  nsa::NsaConfig config;
  int64_t batch, tokens;
  int64_t forward_launches, backward_launches;  ///< at most
};

/// Forward and backward of one size on the kernels, all inputs differentiable.
class WholeCall {
 public:
  explicit WholeCall(const Size& size)
      : config_(size.config),
        in_(nsa::random_inputs(size.config, size.batch, size.tokens,
                               at::TensorOptions(at::kCUDA).dtype(at::kBFloat16))),
        d_o_(at::randn({size.batch, size.tokens, config_.num_heads, config_.v_head_dim},
                       in_.q.options())) {
    options_.sel = nsa::SelBackend::kFused;
    options_.cmp = options_.win = nsa::BranchBackend::kFused;
    options_.keep_scores = false;
    options_.strict_backend = true;
    for (const auto& [name, tensor] : nsa::differentiable(in_)) {
      tensor->requires_grad_(true);
      leaves_.push_back(*tensor);
    }
  }

  Tensor forward() const { return nsa::nsa_attention(in_, config_, options_).o; }
  /// The output, then the gradients of all inputs.
  Tensors forward_backward() const {
    const Tensor o = forward();
    Tensors all = torch::autograd::grad({o}, leaves_, {d_o_});
    all.insert(all.begin(), o.detach());
    return all;
  }
  /// Other values at the same addresses.
  void draw() {
    const at::NoGradGuard no_grad;
    for (Tensor& leaf : leaves_) leaf.normal_();
    d_o_.normal_();
  }

 private:
  nsa::NsaConfig config_;
  nsa::NsaInputs in_;
  nsa::NsaOptions options_;
  Tensors leaves_;
  Tensor d_o_;
};

std::string listed(const Launches& launches) { return launches_json(launches).dump(1); }

class WholeCallOnCuda : public ::testing::TestWithParam<Size> {
 protected:
  void SetUp() override { at::manual_seed(41); }
};

TEST_P(WholeCallOnCuda, IsAFewLaunches) {
  const WholeCall call(GetParam());
  call.forward_backward();  // handles and workspaces of the libraries are made outside the graph
  Tensor o;
  Tensors all;
  const CapturedCall forward([&] { o = call.forward(); });
  o = Tensor();  // its graph belongs to the stream it was made on
  const CapturedCall both([&] { all = call.forward_backward(); });
  const int64_t forward_launches = forward.launches().total(),
                backward_launches = both.launches().total() - forward_launches;
  std::printf("%s: %lld forward, %lld backward\n", GetParam().name,
              static_cast<long long>(forward_launches), static_cast<long long>(backward_launches));
  EXPECT_GT(forward_launches, 0);
  EXPECT_LE(forward_launches, GetParam().forward_launches) << listed(forward.launches());
  EXPECT_GT(backward_launches, 0);
  EXPECT_LE(backward_launches, GetParam().backward_launches) << listed(both.launches());
}

TEST_P(WholeCallOnCuda, AGraphGivesTheBitsOfTheCallOnNewInputs) {
  WholeCall call(GetParam());
  call.forward_backward();
  Tensor o;
  Tensors all;
  CapturedCall forward([&] { o = call.forward().detach(); });
  CapturedCall both([&] { all = call.forward_backward(); });
  for (int round = 0; round < 2; ++round) {
    call.draw();
    const Tensors want = call.forward_backward();
    forward.replay();
    EXPECT_TRUE(at::equal(o, want[0])) << "forward, round " << round;
    both.replay();
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_TRUE(at::equal(all[i], want[i])) << "tensor " << i << ", round " << round;
      EXPECT_TRUE(want[i].isfinite().all().item<bool>()) << "tensor " << i;
    }
  }
}

TEST(CapturedCallOnCuda, AfterAFailedCaptureTheDeviceIsAsBefore) {
  const auto megabytes = [] { return at::empty({1 << 20}, at::device(at::kCUDA)); };
  const std::vector<std::function<void()>> failing = {
      [] { at::empty({int64_t{1} << 50}, at::device(at::kCUDA)); },  // out of memory
      [&] { megabytes().sum().item(); },                             // waits for the device
      [&] { megabytes(), throw std::runtime_error("given up"); }};   // an error of its own
  for (size_t i = 0; i < failing.size(); ++i) {
    EXPECT_ANY_THROW(CapturedCall{failing[i]}) << "capture " << i;
    Tensor x = megabytes().fill_(2), y;
    CapturedCall good([&] { y = x * 3; });
    good.replay();
    EXPECT_EQ(y.sum().item<float>(), 6.f * (1 << 20)) << "after capture " << i;
  }
}

TEST_P(WholeCallOnCuda, NeverWaitsForTheDevice) {
  const WholeCall call(GetParam());
  call.forward_backward();
  EXPECT_EQ(count_host_syncs(at::kCUDA, [&] { call.forward_backward(); }), 0);
}

TEST_P(WholeCallOnCuda, RepeatsHaveTheSameBits) {
  const WholeCall call(GetParam());
  RepeatedBits bits;
  for (int i = 0; i < 50; ++i) bits.add(call.forward_backward());
  EXPECT_EQ(bits.differing(), 0);
}

INSTANTIATE_TEST_SUITE_P(Sizes, WholeCallOnCuda,
                         ::testing::Values(Size{"m7c_2k", nsa::m7c_125m(), 8, 2048, 5, 10},
                                           Size{"paper_4k", paper(), 1, 4096, 10, 16}),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace suites
