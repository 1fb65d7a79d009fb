// What a kernel of sm_90 has of its launch, on a device or in the emulator.
#pragma once
#include "nsa/kernels/common/launch.cuh"

/// A kernel's body stands between #if NSA_CODE_OF_SM90 and #endif.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(NSA_EMULATED)
#define NSA_CODE_OF_SM90 1
#else
#define NSA_CODE_OF_SM90 0
#endif

/// The block's dynamic shared memory, in which the kernel finds a multiple of 1024 itself.
#ifdef NSA_EMULATED
#define NSA_UNALIGNED_SHARED(name) char* const name = emulator::shared_memory()
#else
#define NSA_UNALIGNED_SHARED(name) extern __shared__ char name[]
#endif

/// The same where a register is worth more: it begins with a multiple of 1024, or the kernel stops.
#ifdef NSA_EMULATED
#define NSA_ALIGNED_SHARED(name)                 \
  char* const name = emulator::shared_memory() + \
                     (1024 - cute::cast_smem_ptr_to_uint(emulator::shared_memory()) % 1024) % 1024
#else
#define NSA_ALIGNED_SHARED(name)                 \
  extern __shared__ __align__(1024) char name[]; \
  if (cute::cast_smem_ptr_to_uint(name) % 1024 != 0) __trap()
#endif
