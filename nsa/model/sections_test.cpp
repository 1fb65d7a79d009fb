#include "nsa/model/sections.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "nsa/model/blocks/loss.h"
#include "nsa/model/decoder.h"

namespace nsa {
namespace {

ModelConfig observed_model() {
  ModelConfig config;
  config.name = "small";
  config.dim = 32, config.num_layers = 2, config.mlp_hidden = 48, config.seq_len = 32;
  config.attention.num_heads = 2, config.attention.num_kv_heads = 1;
  config.attention.qk_head_dim = config.attention.v_head_dim = 16;
  config.attention.block_size = 8, config.attention.block_stride = 4;
  config.attention.sel_block_size = 16, config.attention.top_n = 4, config.attention.window = 16;
  return config;
}

/// Writes down every call, and the gradients that are there at the end of a section's backward
/// pass.
class Recorder : public SectionObserver {
 public:
  explicit Recorder(std::vector<std::vector<at::Tensor>> parameters)
      : parameters_(std::move(parameters)) {}
  void before_forward(size_t section) override { add("forward", section); }
  void after_forward(size_t section) override { add("done", section); }
  void before_backward(size_t section) override { add("backward", section); }
  void after_backward(size_t section) override {
    add("done", section);
    for (const at::Tensor& parameter : parameters_[section])
      if (!parameter.grad().defined()) calls += " without a gradient";
  }
  std::string calls;

 private:
  void add(const std::string& what, size_t section) {
    calls += (calls.empty() ? "" : ", ") + what + " " + std::to_string(section);
  }
  std::vector<std::vector<at::Tensor>> parameters_;
};

std::vector<at::Tensor> gradients(Decoder& model, const at::Tensor& tokens) {
  model->zero_grad();
  next_token_loss(model->forward(tokens.slice(1, 0, -1)).logits, tokens).backward();
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : model->parameters()) all.push_back(parameter.grad().clone());
  return all;
}

TEST(Sections, AreVisitedInOrderWithAllTheirGradientsBehindThem) {
  for (const bool tied : {false, true}) {
    for (const bool checkpointing : {false, true}) {
      ModelConfig config = observed_model();
      config.tied_head = tied;
      Decoder model(config);
      model->activation_checkpointing = checkpointing;
      Recorder recorder(model->section_parameters());
      model->sections = &recorder;
      gradients(model, at::randint(256, {2, 33}, at::kLong));
      EXPECT_EQ(recorder.calls,
                "forward 0, done 0, forward 1, done 1, forward 2, done 2, forward 3, done 3, "
                "backward 3, done 3, backward 2, done 2, backward 1, done 1")
          << "tied " << tied << " checkpointing " << checkpointing;
    }
  }
}

TEST(Sections, GradientsHaveTheSameBits) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    Decoder model(observed_model());
    model->compute_type = type;
    const at::Tensor tokens = at::randint(256, {2, 33}, at::kLong);
    const std::vector<at::Tensor> want = gradients(model, tokens);
    Recorder recorder(model->section_parameters());
    model->sections = &recorder;
    const std::vector<at::Tensor> have = gradients(model, tokens);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(at::equal(have[i], want[i])) << type << ", parameter " << i;
  }
}

TEST(Sections, HoldEveryParameterOnce) {
  for (const bool tied : {false, true}) {
    ModelConfig config = observed_model();
    config.tied_head = tied;
    const Decoder model(config);
    size_t count = 0;
    for (const auto& section : model->section_parameters()) count += section.size();
    EXPECT_EQ(count, model->parameters().size());
  }
}

}  // namespace
}  // namespace nsa
