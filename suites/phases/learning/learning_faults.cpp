#include "suites/phases/learning/learning_faults.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "nsa/train/loop/training_attention.h"
#include "suites/phases/phase.h"

namespace suites {
namespace {

/// int32 [B, S, Hkv, n]: forced blocks, then random ones that the query may see.
at::Tensor random_blocks(const nsa::ModelConfig& config, int64_t batch, at::Generator generator) {
  const nsa::NsaConfig& c = config.attention;
  const at::Tensor current =
      at::arange(config.seq_len, at::kLong).div(c.sel_block_size, "floor").view({1, -1, 1, 1});
  at::Tensor share = at::empty({batch, config.seq_len, c.num_kv_heads, c.top_n}, at::kDouble);
  share.uniform_(0, 1, generator);
  at::Tensor ids = (share * (current + 1)).floor().to(at::kLong);
  int64_t place = 0;
  for (int64_t i = 0; i < c.num_initial && place < c.top_n; ++i) ids.select(-1, place++).fill_(i);
  for (int64_t i = 0; i < c.num_local && place < c.top_n; ++i)
    ids.select(-1, place++).copy_((current - i).squeeze(-1).expand_as(ids.select(-1, 0)));
  return ids.to(at::kInt);
}

void take_random_blocks(nsa::train::TrainerParts& parts, const nsa::ModelConfig& config,
                        int64_t batch) {
  const auto attention = nsa::train::training_attention(nsa::SwitchSet(), "auto",
                                                        parts.model->parameters()[0].device());
  parts.learning_rate = [base = parts.learning_rate, model = parts.model, config, batch,
                         options = attention.options,
                         generator =
                             at::make_generator<at::CPUGeneratorImpl>(7)](int64_t step) mutable {
    options.block_idx = random_blocks(config, batch, generator).to(model->parameters()[0].device());
    model->set_attention_options(options);
    return base(step);
  };
}

void plain_selection(nsa::train::TrainerParts& parts, const nsa::ModelConfig& /*config*/,
                     int64_t /*batch*/) {
  auto attention = nsa::train::training_attention(nsa::SwitchSet(), "auto",
                                                  parts.model->parameters()[0].device());
  attention.options.sel = nsa::SelBackend::kGather;
  parts.model->set_attention_options(attention.options);
}

void learn_nothing(nsa::train::TrainerParts& parts, const nsa::ModelConfig& /*config*/,
                   int64_t /*batch*/) {
  parts.learning_rate = [](int64_t /*step*/) { return 0.0; };
}

}  // namespace

void inject_learning_fault(TaskArm& arm, const std::string& fault) {
  if (fault == "random_blocks")
    arm.change = take_random_blocks;
  else if (fault == "plain_selection")
    arm.change = plain_selection;
  else if (fault == "only_window")
    arm.config.projections.branch_on = {false, false, true};
  else if (fault == "learns_nothing")
    arm.change = learn_nothing;
  else if (!fault.empty())
    throw ConfigError(
        "args.fault must be random_blocks, plain_selection, only_window or learns_nothing, got '" +
        fault + "'");
}

}  // namespace suites
