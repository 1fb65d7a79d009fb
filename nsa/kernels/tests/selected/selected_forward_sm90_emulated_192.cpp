// Kernels of the selected branch's forward pass at 192/128, compiled as C++ for the emulator.
#include "nsa/kernels/selected/sm90/instances/selected_dense_192_128_bf16.cu"
#include "nsa/kernels/selected/sm90/instances/selected_forward_192_128_bf16.cu"
