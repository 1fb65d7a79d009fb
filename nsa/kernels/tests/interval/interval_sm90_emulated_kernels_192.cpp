// Interval attention of sm_90 compiled as C++ for the emulator: head dims of 192 and 128, one type
// each.
#include "nsa/kernels/interval/sm90/instances/interval_attention_192_128_fp16.cu"
#include "nsa/kernels/interval/sm90/instances/select_192_128_bf16.cu"
