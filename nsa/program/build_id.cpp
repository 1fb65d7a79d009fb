#include "nsa/program/build_id.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace nsa {

std::string build_id() {
  std::ifstream in(std::filesystem::read_symlink("/proc/self/exe").parent_path() / "build_id.json");
  const nlohmann::json json = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("build_id") || !json["build_id"].is_string())
    return "unknown";
  return json["build_id"].get<std::string>();
}

}  // namespace nsa
