// Kernels of the selected branch's backward pass at 192/128, compiled as C++ for the emulator.
#include "nsa/kernels/selected/sm90/instances/selected_backward_192_128_bf16.cu"
#include "nsa/kernels/selected/sm90/instances/selected_early_192_128_bf16.cu"
