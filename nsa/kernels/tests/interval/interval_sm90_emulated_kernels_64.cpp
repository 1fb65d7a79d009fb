// Interval attention of sm_90 compiled as C++ for the emulator: head dims of 64.
#include "nsa/kernels/interval/sm90/instances/interval_attention_64_64_bf16.cu"
#include "nsa/kernels/interval/sm90/instances/select_64_64_bf16.cu"
