#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace harness {

/// What a fault, or the same run without it, led to.
struct Planted {
  bool as_wanted = false;  ///< fault: its code was reported; control: nothing was
  std::string seen;        ///< what was reported, in one sentence
};

struct SelftestSetup {
  std::filesystem::path bin_dir;
  std::string device = "cpu";
  int64_t seed = 1;
};

/// A historical failure of spec/failures.md that `selftest` plants for real.
struct PlantedFault {
  std::string id;                                        ///< P03
  std::string what;                                      ///< what is planted, in words
  std::string code;                                      ///< what must be reported
  std::function<Planted(const SelftestSetup&)> plant;    ///< the faulted run
  std::function<Planted(const SelftestSetup&)> control;  ///< its twin without the fault
};

/// Every fault this room can plant, by id.
const std::vector<PlantedFault>& planted_faults();

}  // namespace harness
