#include "suites/phases/build_id.h"

#include <fstream>
#include <nlohmann/json.hpp>

namespace suites {

std::filesystem::path program_folder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

std::string build_id() {
  std::ifstream file(program_folder() / "build_id.json");
  const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("build_id") || !json["build_id"].is_string())
    return "unknown";
  return json["build_id"].get<std::string>();
}

}  // namespace suites
