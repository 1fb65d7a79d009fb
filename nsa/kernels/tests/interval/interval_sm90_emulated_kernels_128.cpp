// Interval attention of sm_90 compiled as C++ for the emulator: head dims of 128, one type each.
#include "nsa/kernels/interval/sm90/instances/interval_attention_128_128_bf16.cu"
#include "nsa/kernels/interval/sm90/instances/select_128_128_fp16.cu"
