// Kernels of the decode step, compiled as C++ for the emulator.
#include "nsa/device/sm80/decode_128_128_bf16.cu"
#include "nsa/device/sm80/decode_128_128_fp16.cu"
#include "nsa/device/sm80/decode_192_128_bf16.cu"
#include "nsa/device/sm80/decode_192_128_fp16.cu"
#include "nsa/device/sm80/decode_64_64_bf16.cu"
#include "nsa/device/sm80/decode_64_64_fp16.cu"
