// A decoder on CUDA, gradients and all, against fp64 on the CPU; part of backends_gpu_test. Every
// block is chosen, so that no choice differs.
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "nsa/model/blocks/loss.h"
#include "nsa/model/decoder.h"
#include "nsa/tests/backends_gpu_testing.h"

namespace nsa {
namespace {

ModelConfig small_model(RopeMode rope, Phi phi) {
  ModelConfig config;
  config.name = "small";
  config.vocab = 256;
  config.dim = 192;
  config.num_layers = 2;
  config.mlp_hidden = 256;
  config.seq_len = 200;
  config.attention.num_heads = 6;
  config.attention.num_kv_heads = 2;
  config.attention.qk_head_dim = config.attention.v_head_dim = 64;
  config.attention.top_n = 8;
  config.attention.window = 48;
  config.attention.rope = rope;
  config.attention.phi = phi;
  return config;
}

struct Trained {
  double loss = 0;
  std::vector<std::string> names;
  std::vector<at::Tensor> gradients;        ///< fp64 on the CPU
  std::map<std::string, at::Tensor> terms;  ///< of a phi_k_b2: sizes of what its gradient adds
};

/// Adds up the sizes of the rows of the gradient that passes.
struct SizeOfTerms : torch::autograd::FunctionPreHook {
  explicit SizeOfTerms(at::Tensor& terms) : terms_(terms) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& d) override {
    const at::Tensor rows = d.at(0).detach().to(at::kCPU, at::kDouble).abs();
    const at::Tensor sum = rows.reshape({-1, rows.size(-1)}).sum(0);
    terms_ = terms_.defined() ? terms_ + sum : sum;
    return d;
  }
  at::Tensor& terms_;
};

/// Hooks the functions that add `bias` to something: their gradient's rows are its gradient's
/// terms.
void watch_terms(const at::Tensor& loss, const at::Tensor& bias, at::Tensor& terms) {
  std::set<torch::autograd::Node*> seen;
  std::vector<torch::autograd::Node*> open{loss.grad_fn().get()};
  while (!open.empty()) {
    torch::autograd::Node* node = open.back();
    open.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    for (const torch::autograd::Edge& edge : node->next_edges()) {
      open.push_back(edge.function.get());
      if (edge.function && edge.function == torch::autograd::impl::grad_accumulator(bias))
        node->add_pre_hook(std::make_unique<SizeOfTerms>(terms));
    }
  }
}

Trained train(Decoder model, const at::Tensor& tokens) {
  model->zero_grad();
  const auto out = model->forward(tokens.slice(1, 0, -1));
  const at::Tensor loss = next_token_loss(out.logits, tokens);
  Trained trained{loss.item<double>(), {}, {}, {}};
  for (const auto& item : model->named_parameters())
    if (item.key().ends_with("phi_k_b2"))
      watch_terms(loss, item.value(), trained.terms[item.key()]);
  loss.backward();
  for (const auto& item : model->named_parameters()) {
    trained.names.push_back(item.key());
    trained.gradients.push_back(item.value().grad().to(at::kCPU, at::kDouble));
  }
  return trained;
}

/// Relative error over all values.
double error_of(const at::Tensor& have, const at::Tensor& want) {
  return ((have - want).norm() / want.norm()).item<double>();
}

/// `model` with weights as its compute type has them, in fp64.
Decoder exact_copy(const ModelConfig& config, Decoder model) {
  const at::NoGradGuard no_grad;
  Decoder copy(config);
  copy->to(at::kDouble);
  copy->compute_type = at::kDouble;
  const auto theirs = model->named_parameters();
  for (auto& item : copy->named_parameters()) {
    const at::Tensor weight = theirs[item.key()].cpu();
    const bool rounded = item.key().find("gate_b") == std::string::npos &&
                         item.key().find("gate_w") == std::string::npos &&
                         item.key().find("phi_") == std::string::npos;
    item.value().copy_(rounded ? weight.to(model->compute_type) : weight);
  }
  return copy;
}

TEST(DecoderOnCuda, GradientsAreThoseOfTheFormulas) {
  for (const auto& [rope, phi] :
       {std::pair{RopeMode::kBeforePool, Phi::kMean}, std::pair{RopeMode::kNone, Phi::kMean},
        std::pair{RopeMode::kBeforePool, Phi::kMlp}}) {
    at::manual_seed(71);
    const ModelConfig config = small_model(rope, phi);
    Decoder model(config);
    Decoder on_cuda(config);
    on_cuda->to(at::kCUDA);
    {
      const at::NoGradGuard no_grad;
      auto theirs = model->named_parameters();
      for (auto& item : on_cuda->named_parameters()) {
        theirs[item.key()].mul_(item.key().find("norm") == std::string::npos ? 3 : 1);
        item.value().copy_(theirs[item.key()]);
      }
    }
    NsaOptions options;
    options.sel = SelBackend::kFused;
    options.cmp = options.win = BranchBackend::kFused;
    options.strict_backend = true;
    on_cuda->set_attention_options(options);
    on_cuda->compute_type = at::kBFloat16;
    const at::Tensor tokens = at::randint(256, {3, 201}, at::kLong);
    const Trained have = train(on_cuda, tokens.to(at::kCUDA));
    const Trained again = train(on_cuda, tokens.to(at::kCUDA));
    NsaOptions composed;
    composed.sel = SelBackend::kGather;
    composed.cmp = composed.win = BranchBackend::kPlain;
    composed.strict_backend = true;
    on_cuda->set_attention_options(composed);
    const Trained plain_on_cuda = train(on_cuda, tokens.to(at::kCUDA));
    model->compute_type = at::kBFloat16;
    const Trained want = train(exact_copy(config, model), tokens);
    const Trained plain = train(model, tokens);
    EXPECT_LE(std::abs(have.loss - want.loss), 1e-3 * want.loss);
    ASSERT_EQ(have.gradients.size(), want.gradients.size());
    for (size_t i = 0; i < have.gradients.size(); ++i) {
      if (have.names[i].ends_with("phi_k_b2")) {
        // Moves no probability: 0 but for rounding, so that its terms are its scale and one ulp of
        // the type its bound, as in OneCall.EveryPhi.
        const at::Tensor& terms = want.terms.at(have.names[i]);
        ASSERT_TRUE(terms.defined() && terms.min().item<double>() > 0) << have.names[i];
        EXPECT_LE(want.gradients[i].abs().max().item<double>(), 1e-10) << have.names[i];
        EXPECT_LE((have.gradients[i].abs() / terms).max().item<double>(), 0x1p-7) << have.names[i];
        EXPECT_TRUE(at::equal(have.gradients[i], again.gradients[i])) << have.names[i];
        continue;
      }
      // Twice the error of the plain operators in the same type. Roundings fall differently on the
      // two devices, and for a gradient of few values a bound from one of them alone is too tight.
      const double bound = std::max({5e-3, 2 * error_of(plain.gradients[i], want.gradients[i]),
                                     2 * error_of(plain_on_cuda.gradients[i], want.gradients[i])});
      EXPECT_LE(error_of(have.gradients[i], want.gradients[i]), bound) << have.names[i];
      EXPECT_TRUE(at::equal(have.gradients[i], again.gradients[i]))
          << "not the same bits twice: " << have.names[i];
    }
  }
}

// Weights are rounded once for a forward pass, or layer by layer: it makes no difference.
TEST(DecoderOnCuda, CheckpointingHasTheSameBits) {
  at::manual_seed(72);
  const ModelConfig config = small_model(RopeMode::kBeforePool, Phi::kMean);
  Decoder model(config);
  model->to(at::kCUDA);
  model->compute_type = at::kBFloat16;
  NsaOptions options;
  options.sel = SelBackend::kFused;
  options.cmp = options.win = BranchBackend::kFused;
  model->set_attention_options(options);
  const at::Tensor tokens =
      at::randint(256, {3, 201}, at::TensorOptions(at::kCUDA).dtype(at::kLong));
  const Trained plain = train(model, tokens);
  model->activation_checkpointing = true;
  const Trained checkpointed = train(model, tokens);
  EXPECT_EQ(plain.loss, checkpointed.loss);
  for (size_t i = 0; i < plain.gradients.size(); ++i)
    EXPECT_TRUE(at::equal(plain.gradients[i], checkpointed.gradients[i])) << plain.names[i];
}

}  // namespace
}  // namespace nsa
