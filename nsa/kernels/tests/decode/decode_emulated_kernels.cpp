// Kernels of the decode step, compiled as C++ for the emulator.
#include "nsa/kernels/decode/instances/decode_128_128_bf16.cu"
#include "nsa/kernels/decode/instances/decode_128_128_fp16.cu"
#include "nsa/kernels/decode/instances/decode_192_128_bf16.cu"
#include "nsa/kernels/decode/instances/decode_192_128_fp16.cu"
#include "nsa/kernels/decode/instances/decode_64_64_bf16.cu"
#include "nsa/kernels/decode/instances/decode_64_64_fp16.cu"
