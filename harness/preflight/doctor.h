#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "harness/provenance/gpu/gpu.h"
#include "harness/provenance/gpu/xid.h"

namespace harness {

/// One line of `nsa-validate doctor`.
struct DoctorRow {
  enum class State { kOk, kWarning, kProblem };
  State state = State::kOk;
  std::string what;    ///< "disk space"
  std::string found;   ///< "12,345 MiB free in /tmp"
  std::string remedy;  ///< empty when ok
};

/// Facts of the machine: compiler, disk, memory, driver, GPUs (foreign processes, PCIe link, ECC
/// and Xid errors, clocks held down), LibTorch, programs and their build id, data, leftovers of
/// earlier runs, whether `out` can be written. With `configs`, what each GPU reaches in a copy and
/// a matrix product beside the rates of its kind in configs/hardware. A second without a GPU, less
/// than 60 with one; changes nothing.
std::vector<DoctorRow> doctor(const std::filesystem::path& out,
                              const std::filesystem::path& bin_dir,
                              const std::filesystem::path& configs = {});

/// Rows of one GPU's health, from the facts of NVML.
std::vector<DoctorRow> gpu_rows(const GpuFacts& gpu);

/// Errors of GPUs in the kernel's log.
DoctorRow xid_row(const KernelLog& log);

/// A rate against the norm of its kind: a warning below 85 % of it. Without a norm it is only
/// shown.
DoctorRow ceiling_row(const std::string& what, double measured, std::optional<double> norm,
                      const std::string& unit);

/// 0 when no row is a problem, else 3.
int doctor_exit(const std::vector<DoctorRow>& rows);

}  // namespace harness
