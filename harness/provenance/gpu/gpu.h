#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

/// GPU facts by NVML. The library is opened at run time (libnvidia-ml.so.1), so that one program
/// serves machines with and without a driver; nothing here touches a device.
namespace harness {

struct GpuProcess {
  int64_t pid = 0;
  std::optional<int64_t> mib;  ///< none: the driver does not report it (containers, MIG)
  std::string name;            ///< /proc/PID/comm; empty when the process is not visible here
};

struct GpuFacts {
  int64_t index = 0;
  std::string name, uuid, vbios, compute_mode;
  std::string cc;  ///< compute capability, "9.0"
  int64_t memory_total_mib = 0, memory_free_mib = 0;
  int64_t memory_used_mib = 0;  ///< without what the driver reserves for itself
  std::vector<GpuProcess> processes;
  std::string processes_problem;  ///< why the list cannot be trusted; empty when it can
  std::optional<int64_t> sm_clock_mhz, max_sm_clock_mhz, memory_clock_mhz, power_limit_w,
      temperature_c;
  std::optional<int64_t> pcie_gen, pcie_width, max_pcie_gen, max_pcie_width;
  std::optional<int64_t> nvlinks;          ///< that are up; 0: other GPUs are reached over PCIe
  std::optional<int64_t> ecc_uncorrected;  ///< errors since the driver was loaded
  std::optional<int64_t> throttle_bits;    ///< reasons other than idling that hold clocks down
  std::optional<bool> ecc, persistence, mig;

  /// Memory that others hold. No context of ours exists when the facts are taken, so used memory is
  /// foreign memory; it is the fallback where the process list is empty or hidden.
  int64_t foreign_mib() const;
  /// No foreign process, and less used memory than `kIdleMib`.
  bool exclusive() const;
  static constexpr int64_t kIdleMib = 256;
};

struct GpuList {
  bool nvml = false;
  std::string problem;         ///< why there is no list; empty when NVML answered
  std::string driver;          ///< "580.65.06"
  std::string cuda;            ///< newest CUDA version the driver runs, "13.0"
  std::vector<GpuFacts> gpus;  ///< those that programs started from here see, in their order
  std::string
      visible;  ///< CUDA_VISIBLE_DEVICES where it is set: others of the machine are left out
};

/// Of `all`, in NVML's order, those that CUDA shows under CUDA_VISIBLE_DEVICES=`value`: numbers or
/// beginnings of uuids, up to the first that names none; nothing named: none; slices (MIG): all. A
/// run on one GPU of a shared machine neither checks nor records the other GPUs.
std::vector<GpuFacts> visible_gpus(std::vector<GpuFacts> all,
                                   const std::optional<std::string>& value);

/// The list, at the time of the call. `library` is for tests.
GpuList list_gpus(const std::string& library = "libnvidia-ml.so.1");

/// Processes that hold memory of a GPU ("GPU 0: 812 MiB held, pid 71 python 800 MiB"); empty: none.
std::string held_text(const GpuList& list);

nlohmann::json to_json(const GpuList& list);

}  // namespace harness
