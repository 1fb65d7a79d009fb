#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "nsa/model/decoder.h"

namespace nsa::train {

struct PretrainedWeights {
  int64_t num_tensors = 0;
  std::string sha256;  ///< of the tensors' names and bytes, in the order they were read
};

/// Sets every parameter of `model` from the safetensors at `path` (weight_files.h), which hold a
/// Llama-like NSA model under Hugging Face's names:
///   model.embed_tokens.weight; model.norm.weight; lm_head.weight (a tied head: absent or equal);
///   model.layers.N.{input_layernorm, post_attention_layernorm}.weight,
///   .self_attn.{q,k,v,g,o}_proj.weight, .mlp.{gate,up,down}_proj.weight.
/// F32, BF16, F16 and F64, converted to the type of the parameters. Rows of q_proj and k_proj are
/// those of a half-split rotation; a model of interleaved pairs gets them in its order.
/// Throws InputError: for a model whose projections have no such names; naming every tensor that is
/// missing, unknown, given twice or of another shape or type, with its file. The parameters are
/// then undefined.
PretrainedWeights load_pretrained_weights(const std::filesystem::path& path, DecoderImpl& model);

}  // namespace nsa::train
