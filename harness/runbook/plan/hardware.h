#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "harness/schema/traits.h"

/// configs/hardware/NAME.json: what a card should reach, shown beside what was measured.
namespace harness {

struct HardwareSpec {
  std::string name;
  std::string sku;  ///< glob over the name NVML gives
  double cc = 0;
  double memory_mib = 0;
  double memory_gb_s = 0;                            ///< data sheet
  double bf16_tflop_s = 0;                           ///< data sheet, dense
  std::optional<double> measured_copy_gb_s = {};     ///< read + write
  std::optional<double> measured_bf16_tflop_s = {};  ///< 8192^3 matmul
  std::string source;
  template <class V>
  static void describe(V& v) {
    v({.name = "name", .doc = "name of the file", .required = true}, &HardwareSpec::name);
    v({.name = "sku", .doc = "glob over the name NVML gives", .required = true},
      &HardwareSpec::sku);
    v({.name = "cc", .doc = "compute capability", .required = true}, &HardwareSpec::cc);
    v({.name = "memory_mib", .doc = "device memory", .unit = "mib", .required = true},
      &HardwareSpec::memory_mib);
    v({.name = "memory_gb_s",
       .doc = "memory bandwidth of the data sheet",
       .unit = "gb_s",
       .required = true},
      &HardwareSpec::memory_gb_s);
    v({.name = "bf16_tflop_s",
       .doc = "dense bf16 rate of the data sheet",
       .unit = "tflop_s",
       .required = true},
      &HardwareSpec::bf16_tflop_s);
    v({.name = "measured_copy_gb_s",
       .doc = "device copy as measured, read + write",
       .unit = "gb_s"},
      &HardwareSpec::measured_copy_gb_s);
    v({.name = "measured_bf16_tflop_s", .doc = "8192^3 bf16 matmul as measured", .unit = "tflop_s"},
      &HardwareSpec::measured_bf16_tflop_s);
    v({.name = "source", .doc = "where the figures come from", .required = true},
      &HardwareSpec::source);
  }
};

/// Every configs/hardware/NAME.json. Throws ConfigError.
std::vector<HardwareSpec> load_hardware(const std::filesystem::path& configs_dir);

/// The first card whose `sku` matches; none when no file describes it.
std::optional<HardwareSpec> find_hardware(const std::vector<HardwareSpec>& cards,
                                          const std::string& sku);

}  // namespace harness
