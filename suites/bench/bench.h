#pragma once
#include <benchmark/benchmark.h>
#include <c10/core/Device.h>

#include <functional>

namespace suites {

/// Runs `work` in manual time: one iteration is one call, timed by events on CUDA and by the steady
/// clock on a CPU.
void time_iterations(benchmark::State& state, at::Device device, const std::function<void()>& work);

/// Register the benchmarks of a file, to run on `device` with data from `seed`.
void register_decode_benchmarks(at::Device device, uint64_t seed);
void register_ranges_benchmarks(at::Device device, uint64_t seed);
void register_operator_benchmarks(at::Device device, uint64_t seed);

}  // namespace suites
