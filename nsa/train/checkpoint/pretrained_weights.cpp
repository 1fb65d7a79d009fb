#include "nsa/train/checkpoint/pretrained_weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "base/hash/sha256.h"
#include "nsa/program/input_error.h"
#include "nsa/tensor_file/tensor_file.h"
#include "nsa/train/checkpoint/weight_files.h"

namespace nsa::train {
namespace {

namespace fs = std::filesystem;
using tensor_file::Dtype;
using tensor_file::FileTensor;
using tensor_file::TensorFile;

constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

const std::pair<Dtype, at::ScalarType> kWeightTypes[] = {{Dtype::kF32, at::kFloat},
                                                         {Dtype::kBF16, at::kBFloat16},
                                                         {Dtype::kF16, at::kHalf},
                                                         {Dtype::kF64, at::kDouble}};

/// Where a tensor of the files goes.
struct Place {
  at::Tensor rows;        ///< a parameter, or rows of one
  int64_t num_heads = 0;  ///< above 0: rows of heads, from the order of half-split pairs to
                          ///< that of interleaved ones
};
using Places = std::map<std::string, Place>;

void require_names(const ModelConfig& config) {
  std::string wrong;
  const auto require = [&](bool ok, const char* want) {
    if (!ok) wrong += (wrong.empty() ? "" : ", ") + std::string(want);
  };
  require(config.attention_kind == AttentionKind::kNsa, "attention_kind nsa");
  require(config.projections.shared_kv, "shared_kv true");
  require(!config.projections.has_gate_mlp(), "gate_projection linear");
  require(config.attention.phi == Phi::kMean, "phi mean");
  if (!wrong.empty())
    throw InputError("weights: model " + config.name + " must have " + wrong +
                     ", as nsa_1b has: pretrained weights have no other tensors");
}

void add_layer(const std::string& theirs, const std::string& ours, const DecoderImpl& model,
               Places& places) {
  const auto parameters = model.named_parameters();
  const auto add = [&](const char* name, const char* parameter) -> Place& {
    return places[theirs + name + ".weight"] = {parameters[ours + parameter].detach(), 0};
  };
  const NsaConfig& c = model.config().attention;
  const bool reorders = c.rope != RopeMode::kNone && c.rope_pairs == RopePairs::kInterleaved;
  add("input_layernorm", "attention_norm");
  add("self_attn.q_proj", "attention.w_q").num_heads = reorders ? c.num_heads : 0;
  add("self_attn.k_proj", "attention.w_k").num_heads = reorders ? c.num_kv_heads : 0;
  add("self_attn.v_proj", "attention.w_v");
  add("self_attn.g_proj", "attention.w_g");
  add("self_attn.o_proj", "attention.w_o");
  add("post_attention_layernorm", "mlp_norm");
  const int64_t hidden = model.config().mlp_hidden;
  Place& gate = add("mlp.gate_proj", "w_gate_up");
  Place& up = add("mlp.up_proj", "w_gate_up");
  gate.rows = gate.rows.narrow(0, 0, hidden);
  up.rows = up.rows.narrow(0, hidden, hidden);
  add("mlp.down_proj", "w_down");
}

Places places_of(const DecoderImpl& model) {
  const auto parameters = model.named_parameters();
  Places places;
  places[kEmbedding] = {parameters["embedding"].detach()};
  places["model.norm.weight"] = {parameters["final_norm"].detach()};
  if (!model.config().tied_head) places[kHead] = {parameters["head"].detach()};
  for (int64_t i = 0; i < model.config().num_layers; ++i) {
    const std::string index = std::to_string(i);
    add_layer("model.layers." + index + ".", "layer" + index + ".", model, places);
  }
  return places;
}

/// Rows m and m + dim / 2 of each head become 2m and 2m + 1.
at::Tensor interleaved(const at::Tensor& rows, int64_t num_heads) {
  return rows.view({num_heads, 2, -1, rows.size(-1)}).transpose(1, 2).reshape(rows.sizes());
}

std::string shape_text(at::IntArrayRef shape) { return c10::str(shape); }

/// Puts tensors into their places and collects what does not fit.
class Loader {
 public:
  explicit Loader(const DecoderImpl& model)
      : name_(model.config().name), tied_(model.config().tied_head), places_(places_of(model)) {}

  void take_file(const fs::path& path, const TensorFile& file, const WeightFiles& all) {
    for (const auto& [name, tensor] : file.tensors) take(name, tensor, path);
    for (const auto& [name, place] : all.file_of)
      if (place == path && !file.has(name))
        problem(path.string() + " has no tensor " + name + ", which the index has in it");
  }

  PretrainedWeights finish(const fs::path& path) {
    if (tied_head_.defined() && seen_.contains(kEmbedding) &&
        !at::equal(tied_head_, places_[kEmbedding].rows))
      problem(std::string("tensor ") + kHead + " differs from " + kEmbedding +
              ", and the model has tied_head true");
    for (const auto& [name, place] : places_)
      if (!seen_.contains(name))
        problem("tensor " + name + " " + shape_text(place.rows.sizes()) + " is missing");
    if (!problems_.empty())
      throw InputError("weights: " + path.string() + " does not fit model " + name_ + ": " +
                       problems_);
    return {static_cast<int64_t>(seen_.size()), sha256_.hex()};
  }

 private:
  void problem(const std::string& text) { problems_ += (problems_.empty() ? "" : "; ") + text; }

  void take(const std::string& name, const FileTensor& tensor, const fs::path& path) {
    if (!seen_.insert(name).second)
      return problem("tensor " + name + " is in " + path.string() + " and in another file");
    const std::string what = path.string() + ": tensor " + name;
    const bool is_tied_head = tied_ && name == kHead;
    const auto place = places_.find(is_tied_head ? kEmbedding : name);
    if (place == places_.end()) return problem(what + " is unknown to the model");
    const auto* type =
        std::ranges::find(kWeightTypes, tensor.dtype, &std::pair<Dtype, at::ScalarType>::first);
    if (type == std::end(kWeightTypes))
      return problem(what + " must be F32, BF16, F16 or F64, got " +
                     std::string(name_of(tensor.dtype)));
    const at::Tensor& rows = place->second.rows;
    if (rows.sizes() != at::IntArrayRef(tensor.shape))
      return problem(what + " must be " + shape_text(rows.sizes()) + ", got " +
                     shape_text(tensor.shape));
    sha256_.update(name);
    sha256_.update(
        std::span(reinterpret_cast<const uint8_t*>(tensor.bytes.data()), tensor.bytes.size()));
    const at::Tensor source = at::from_blob(const_cast<std::byte*>(tensor.bytes.data()),
                                            tensor.shape, at::dtype(type->second));
    if (is_tied_head) {
      tied_head_ = source.to(rows.options(), /*non_blocking=*/false, /*copy=*/true);
      return;
    }
    const int64_t heads = place->second.num_heads;
    rows.copy_(heads > 0 ? interleaved(source, heads) : source);
  }

  std::string name_;
  bool tied_;
  Places places_;
  std::set<std::string> seen_;
  at::Tensor tied_head_;  ///< a head of the files that must be the embedding
  base::Sha256 sha256_;
  std::string problems_;
};

}  // namespace

PretrainedWeights load_pretrained_weights(const fs::path& path, DecoderImpl& model) {
  const at::NoGradGuard no_grad;
  require_names(model.config());
  const WeightFiles files = find_weight_files(path);
  Loader loader(model);
  for (const fs::path& file : files.files) {
    try {
      loader.take_file(file, tensor_file::read_tensor_file(file), files);
    } catch (const tensor_file::TensorFileError& error) {
      throw InputError(std::string("weights: ") + error.what());
    }
  }
  return loader.finish(path);
}

}  // namespace nsa::train
