// Kernels of the selected branch's backward pass at 64/64, compiled as C++ for the emulator.
#include "nsa/kernels/selected/sm90/instances/selected_backward_64_64_bf16.cu"
#include "nsa/kernels/selected/sm90/instances/selected_early_64_64_bf16.cu"
