// Kernels of the selected branch's backward pass at 128/128, compiled as C++ for the emulator.
#include "nsa/kernels/selected/sm90/instances/selected_backward_128_128_bf16.cu"
#include "nsa/kernels/selected/sm90/instances/selected_early_128_128_bf16.cu"

#ifndef __SANITIZE_ADDRESS__  // see selected_emulated_runs.h
#include "nsa/kernels/selected/sm90/instances/selected_backward_128_128_fp16.cu"
#include "nsa/kernels/selected/sm90/instances/selected_early_128_128_fp16.cu"
#endif
