#include "nsa/model/sampling.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "nsa/model/decoder_cache.h"
#include "nsa/program/input_error.h"

namespace nsa {
namespace {

/// One token from logits [vocab].
int64_t choose_token(const at::Tensor& logits, const Sampling& sampling, at::Generator generator) {
  at::Tensor values = logits.cpu().to(at::kDouble);
  if (sampling.num_values > 0) values = values.slice(0, 0, sampling.num_values);
  if (sampling.temperature == 0) return values.argmax().item<int64_t>();
  const at::Tensor share = at::softmax(values / sampling.temperature, 0);
  return at::multinomial(share, 1, /*replacement=*/false, std::move(generator)).item<int64_t>();
}

}  // namespace

at::Tensor sample_tokens(const Decoder& model, const at::Tensor& prompt, const Sampling& sampling) {
  const ModelConfig& config = model->config();
  if (config.attention_kind == AttentionKind::kDense)
    throw InputError("sampling goes through the decode cache, which the dense model " +
                     config.name + " does not have; use an NSA model");
  const int64_t length = prompt.numel();
  if (length == 0) throw InputError("the prompt must have at least one token, got none");
  if (!(sampling.temperature >= 0))
    throw InputError("temperature must be >= 0, got " + std::to_string(sampling.temperature));
  const at::NoGradGuard no_grad;
  const at::Device device = model->parameters()[0].device();
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(sampling.seed);
  DecoderCache cache(model, 1, length + sampling.tokens);
  at::Tensor made = at::empty({sampling.tokens}, at::kLong);
  at::Tensor logits =
      cache.prefill(prompt.to(device).view({1, length}), {length}).select(1, length - 1);
  for (int64_t i = 0; i < sampling.tokens; ++i) {
    const int64_t token = choose_token(logits[0], sampling, generator);
    made[i] = token;
    if (i + 1 < sampling.tokens)
      logits = cache.step(at::full({1, 1}, token, at::kLong).to(device)).select(1, 0);
  }
  return made;
}

}  // namespace nsa
