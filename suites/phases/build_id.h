#pragma once
#include <filesystem>
#include <string>

namespace suites {

/// Folder of the running executable.
std::filesystem::path program_folder();

/// Field `build_id` of build_id.json beside the executable; "unknown" when there is no such file or
/// field.
std::string build_id();

}  // namespace suites
