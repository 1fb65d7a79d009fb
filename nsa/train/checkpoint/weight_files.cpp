#include "nsa/train/checkpoint/weight_files.h"

#include <fstream>
#include <iterator>
#include <set>

#include "nsa/program/strict_json.h"

namespace nsa::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOneFile = "model.safetensors";
constexpr const char* kIndexEnd = ".safetensors.index.json";
constexpr const char* kIndex = "model.safetensors.index.json";

/// The file that `path` means: itself, or one of two in a folder.
fs::path named_file(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  for (const char* name : {kOneFile, kIndex})
    if (fs::exists(path / name, error)) return path / name;
  throw InputError("weights: folder " + path.string() + " has neither " + kOneFile + " nor " +
                   kIndex + "; name a folder or a file of safetensors");
}

void require_file(const fs::path& path, const std::string& why) {
  std::error_code error;
  if (fs::is_regular_file(path, error)) return;
  throw InputError("weights: " + path.string() +
                   (fs::exists(path, error) ? " is no regular file" : " does not exist") + why);
}

WeightFiles read_index(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const nlohmann::json json = parse_strict_json(text, path.string());
  StrictObject object(json, path.string(), text);
  object.ignore("metadata");
  object.child("weight_map");
  object.finish();
  WeightFiles result;
  std::set<fs::path> files;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    const fs::path name = file.is_string() ? fs::path(file.get<std::string>()) : fs::path();
    if (name.empty() || name != name.filename())
      object.fail(json, "\"weight_map\" must give tensor " + tensor +
                            " a file beside the index, got " + file.dump());
    result.file_of[tensor] = path.parent_path() / name;
    if (files.insert(result.file_of[tensor]).second)
      require_file(result.file_of[tensor], ", and " + path.string() + " has tensor " + tensor +
                                               " in it; the download is incomplete");
  }
  if (files.empty()) object.fail(json, "\"weight_map\" names no tensor");
  result.files.assign(files.begin(), files.end());
  return result;
}

}  // namespace

WeightFiles find_weight_files(const fs::path& path) {
  const fs::path file = named_file(path);
  require_file(file, "");
  if (file.filename().string().ends_with(kIndexEnd)) return read_index(file);
  return {{file}, {}};
}

}  // namespace nsa::train
