#pragma once
#include <filesystem>
#include <string>

namespace harness::cli {

/// "nsa-validate build 1234abcd..., commit 5678ef... (2 files changed)", from build_id.json in
/// `folder`; a text that names the problem when that is missing or damaged.
std::string version_text(const std::filesystem::path& folder);

}  // namespace harness::cli
