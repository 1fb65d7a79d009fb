#pragma once
#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

/// Each in a file of its own: their headers want Gloo's and NCCL's.
namespace nsa::train {

/// Collectives of CPU tensors over TCP.
c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    int rank, int world,
                                                    std::chrono::milliseconds timeout,
                                                    bool one_machine);

/// Collectives of CUDA tensors. Throws InputError in a build without CUDA.
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    int rank, int world,
                                                    std::chrono::milliseconds timeout);

}  // namespace nsa::train
