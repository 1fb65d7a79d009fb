#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace nsa::train {

/// Safetensors files that hold the weights of one model.
struct WeightFiles {
  std::vector<std::filesystem::path> files;  ///< each once, by name
  /// Which of them must hold a tensor, from an index; empty where there is none.
  std::map<std::string, std::filesystem::path> file_of;
};

/// `path`: a safetensors file, an index of several (*.safetensors.index.json, as Hugging Face
/// writes it), or a folder that has model.safetensors or model.safetensors.index.json. Throws
/// InputError for anything else, a malformed index, and a file of the index that is not there.
WeightFiles find_weight_files(const std::filesystem::path& path);

}  // namespace nsa::train
