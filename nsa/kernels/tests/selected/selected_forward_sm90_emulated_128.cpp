// Kernels of the selected branch's forward pass at 128/128, compiled as C++ for the emulator.
#include "nsa/kernels/selected/sm90/instances/selected_dense_128_128_bf16.cu"
#include "nsa/kernels/selected/sm90/instances/selected_forward_128_128_bf16.cu"

#ifndef __SANITIZE_ADDRESS__  // see selected_emulated_runs.h
#include "nsa/kernels/selected/sm90/instances/selected_dense_128_128_fp16.cu"
#include "nsa/kernels/selected/sm90/instances/selected_forward_128_128_fp16.cu"
#endif
