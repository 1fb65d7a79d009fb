#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace harness {

/// Where a shared library of the Python environment lies: LD_LIBRARY_PATH (a folder
/// of it, or `folder` beside the package that it belongs to, as LibTorch's own wheel looks), then
/// `.venv` of the checkout (or of the working directory), or of the one that owns this worktree, at
/// site-packages/`folder`. The file is looked for, not loaded: loading CUPTI or LibTorch costs
/// seconds.
std::optional<std::filesystem::path> find_library(const std::string& file,
                                                  const std::string& folder);

/// "2.11": major and minor version of the LibTorch that programs would load; "unknown" when it
/// declares none.
std::string libtorch_version();

}  // namespace harness
