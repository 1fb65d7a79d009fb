#include "nsa/train/data/corpus_folder.h"

namespace nsa::train {
namespace fs = std::filesystem;

constexpr int kLevelsAbove = 4;

fs::path corpus_folder(const fs::path& root, const std::string& name) {
  std::error_code error;
  if (root.is_absolute() || fs::exists(root / name, error)) return root / name;
  fs::path above = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (int level = 0; level < kLevelsAbove && above.has_parent_path(); ++level) {
    if (fs::exists(above / root / name, error)) return above / root / name;
    above = above.parent_path();
  }
  return root / name;
}

}  // namespace nsa::train
