#pragma once
#include <cstdint>
#include <string>

namespace suites {

inline constexpr uint64_t kBenchSeed = 20250216;

/// The seed that `text` is: digits only, so that no sign, space or word becomes a number. Throws
/// std::invalid_argument naming argument, value and what to give instead.
uint64_t read_seed(const std::string& text);

/// What the microbenchmarks take besides the flags of Google Benchmark.
struct MicroArguments {
  std::string device = "cpu";
  uint64_t seed = kBenchSeed;
};

/// Takes --device and --seed ("--seed 7", "--seed=7") out of argv, which keeps the flags of Google
/// Benchmark. Throws std::invalid_argument for everything else: that library would print it as it
/// is.
MicroArguments take_micro_arguments(int& argc, char** argv);

}  // namespace suites
