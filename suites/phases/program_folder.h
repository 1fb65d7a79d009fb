#pragma once
#include <filesystem>

namespace suites {

/// Folder of the running executable.
std::filesystem::path program_folder();

}  // namespace suites
