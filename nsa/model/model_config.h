#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "nsa/config/config.h"

namespace nsa {

/// Sizes of a decoder. Files: configs/models/NAME.json (README.md there lists the keys).
struct ModelConfig {
  std::string name;
  int64_t vocab = 256;  ///< bytes
  int64_t dim = 768;    ///< width of the residual stream
  int64_t num_layers = 12;
  int64_t mlp_hidden = 1920;  ///< width inside SwiGLU
  int64_t seq_len = 2048;     ///< tokens of a training row unless told otherwise
  double norm_eps = 1e-6;     ///< of every RMSNorm
  NsaConfig attention;

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
