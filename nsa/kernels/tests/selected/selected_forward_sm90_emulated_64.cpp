// Kernels of the selected branch's forward pass at 64/64, compiled as C++ for the emulator.
#include "nsa/kernels/selected/sm90/instances/selected_dense_64_64_bf16.cu"
#include "nsa/kernels/selected/sm90/instances/selected_forward_64_64_bf16.cu"
