#include "nsa/ops/cpu/inner_loops/kernel_table.h"

#include <atomic>

#include "nsa/ops/cpu/inner_loops/kernel_sets.h"

namespace nsa::cpu {
namespace {

std::atomic<InstructionSet>& widest_allowed() {
  static std::atomic<InstructionSet> widest{InstructionSet::kAvx512};
  return widest;
}

}  // namespace

std::string to_string(InstructionSet set) {
  if (set == InstructionSet::kAvx512) return "avx512";
  return set == InstructionSet::kAvx2 ? "avx2" : "baseline";
}

bool is_available(InstructionSet set) {
#if defined(__x86_64__)
  if (set == InstructionSet::kAvx512)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (set == InstructionSet::kAvx2)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
  return set == InstructionSet::kBaseline;
}

InstructionSet instruction_set() {
  const InstructionSet widest = widest_allowed();
  for (const InstructionSet set : {InstructionSet::kAvx512, InstructionSet::kAvx2})
    if (set <= widest && is_available(set)) return set;
  return InstructionSet::kBaseline;
}

const KernelTable& kernel_table() {
#if defined(__x86_64__)
  const InstructionSet set = instruction_set();
  if (set == InstructionSet::kAvx512) return avx512_kernels();
  if (set == InstructionSet::kAvx2) return avx2_kernels();
#endif
  return baseline_kernels();
}

InstructionSetLimit::InstructionSetLimit(InstructionSet widest)
    : before_(widest_allowed().exchange(widest)) {}

InstructionSetLimit::~InstructionSetLimit() { widest_allowed() = before_; }

}  // namespace nsa::cpu
