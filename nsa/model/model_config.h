#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "nsa/config/config.h"
#include "nsa/config/projection_config.h"

namespace nsa {

/// What the layers attend with.
enum class AttentionKind {
  kNsa,    ///< Native Sparse Attention
  kDense,  ///< all earlier tokens: the counterpart of the model that is NSA and else the same
};

/// Tokens a second that training is expected to reach on a card, and where the figures come from.
struct ExpectedRate {
  std::string hardware, source;
  double low = 0, high = 0;
};

/// Sizes of a decoder. Files: configs/models/NAME.json (README.md there lists the keys).
struct ModelConfig {
  std::string name;
  int64_t vocab = 256;  ///< bytes
  int64_t dim = 768;    ///< width of the residual stream
  int64_t num_layers = 12;
  int64_t mlp_hidden = 1920;  ///< width inside SwiGLU
  int64_t seq_len = 2048;     ///< tokens of a training row by default
  double norm_eps = 1e-6;     ///< of every RMSNorm
  bool tied_head = false;     ///< the head is the embedding
  AttentionKind attention_kind = AttentionKind::kNsa;
  bool activation_checkpointing = false;  ///< layers compute their activations twice
  std::vector<ExpectedRate> expected;     ///< for the record; decides nothing
  NsaConfig attention;                    ///< of a dense model: heads, dims and RoPE count
  ProjectionConfig projections;           ///< of a dense model: they decide what is drawn

  /// Throws InputError naming the first impossible field and its value.
  void validate() const;
};

/// Every size and option in one line, equal for equal models.
std::string describe(const ModelConfig& config);

/// Parses one configuration. `where` names the text in errors. Throws InputError with line and
/// column.
ModelConfig parse_model_config(const std::string& text, const std::string& where);

/// Reads `name_or_file`: a path ending in .json, or a NAME looked up as NAME.json in `folders`, in
/// order. Throws InputError listing the known names.
ModelConfig load_model_config(const std::string& name_or_file,
                              const std::vector<std::filesystem::path>& folders);

/// Where programs look for configs/models: below the current folder, then below the folders above
/// the program.
std::vector<std::filesystem::path> model_config_folders();

}  // namespace nsa
