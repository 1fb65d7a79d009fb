#pragma once
#include "nsa/layer/nsa_inputs.h"

namespace nsa {

/// What decides the memory of a call on a CPU.
struct CpuCall {
  int64_t batch = 1, tokens = 1;  ///< packed documents: one sequence of all tokens
  int64_t value_bytes = 4;        ///< of inputs and outputs
  bool kernels = true;            ///< the CPU kernels compute it, not plain operators
  bool gradient = false;          ///< a backward pass follows
};

/// Bytes of tensors that a call takes beyond its inputs where it needs most, by formula: results,
/// what is kept for the backward pass, workspace and gradients. A lower bound: temporaries of plain
/// operators and what an allocator loses are not in it.
double cpu_call_bytes(const NsaConfig& config, const CpuCall& call);

/// Throws c10::OutOfMemoryError with sizes and a remedy unless a call on a CPU fits into the memory
/// that this process can still take. Asks the system only about calls that take more than 256 MiB.
/// `kept`: results for a backward pass are asked for, whether or not a graph is recorded.
void require_memory(const NsaInputs& inputs, const NsaConfig& config, const NsaOptions& options,
                    bool kept);

}  // namespace nsa
