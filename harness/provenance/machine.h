#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace harness {

/// {os, kernel, architecture, libc, cpu: {model, cores, threads_allowed}, memory_mib,
/// memory_available_mib,
///  cgroup: {memory_max_bytes, cpu_max} as the kernel writes them}. What cannot be read is null.
nlohmann::json machine_facts();

/// {path, free_mib, total_mib, writable} of the file system that holds `folder` (or its nearest
/// existing parent).
nlohmann::json disk_facts(const std::filesystem::path& folder);

/// Environment variables that change results: {effective: NSA_*, foreign: NCCL_*, CUDA_*, OMP_*,
/// ...}; nothing else of the environment is read, so that no secret can enter evidence.
nlohmann::json environment_variables();

/// True for a variable that may be recorded.
bool is_recorded_variable(const std::string& name);

}  // namespace harness
