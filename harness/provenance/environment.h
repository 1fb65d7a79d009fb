#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace harness {

struct EnvironmentRequest {
  std::vector<std::string> command_line = {};
  int64_t seed = 0;
  std::filesystem::path out = ".";     ///< run folder: whose disk is looked at
  std::filesystem::path configs = {};  ///< configs/ that the run reads; empty: none
};

/// environment.json: {machine, disk, gpu, git, build, configs, tools, switches, foreign_variables,
/// seed, command_line}. What could not be determined is null or has its reason; variables come from
/// an allow-list only. Takes about 0.2 s.
nlohmann::json environment(const EnvironmentRequest& request = {});

/// What a plan may require. A fact that is absent is unknown, which meets no requirement.
/// gpu.count, gpu.sku (all names equal: that name), gpu.cc (number, smallest), gpu.free_mib
/// (smallest), gpu.exclusive, cupti.ok, git.checkout, data.NAME (DATA/NAME/manifest.json is there),
/// program.NAME (the program lies beside this one), slurm.nodes (of the allocation; 0: outside).
/// `data_folder` empty: .data of the checkout, else of the working directory.
std::map<std::string, nlohmann::json> facts(std::filesystem::path data_folder = {});

}  // namespace harness
