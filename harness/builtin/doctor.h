#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace harness {

/// One line of `nsa-validate doctor`.
struct DoctorRow {
  enum class State { kOk, kWarning, kProblem };
  State state = State::kOk;
  std::string what;    ///< "disk space"
  std::string found;   ///< "12,345 MiB free in /tmp"
  std::string remedy;  ///< empty when ok
};

/// Basic facts of the machine in about a second: compiler, disk, memory, driver, GPUs, LibTorch,
/// programs and their build id, data, leftovers of earlier runs (running workers, half-written
/// files, stop files), and whether `out` can be written.
std::vector<DoctorRow> doctor(const std::filesystem::path& out,
                              const std::filesystem::path& bin_dir);

/// 0 when no row is a problem, else 3.
int doctor_exit(const std::vector<DoctorRow>& rows);

}  // namespace harness
