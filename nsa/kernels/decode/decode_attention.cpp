// Chooses the instantiation and the cut of a decode step.
#include "nsa/kernels/decode/decode_attention.h"

#include <algorithm>

#include "nsa/kernels/common/alignment.h"
#include "nsa/kernels/decode/decode_plan.h"

namespace nsa::kernels {
namespace {

struct DecodeInstance {
  int qk_head_dim, v_head_dim;
  Element element;
  portable::DecodeLaunch launch;
};

constexpr DecodeInstance kDecodeInstances[] = {
    {64, 64, Element::kBFloat16, portable::decode_64_64_bf16},
    {64, 64, Element::kHalf, portable::decode_64_64_fp16},
    {128, 128, Element::kBFloat16, portable::decode_128_128_bf16},
    {128, 128, Element::kHalf, portable::decode_128_128_fp16},
    {192, 128, Element::kBFloat16, portable::decode_192_128_bf16},
    {192, 128, Element::kHalf, portable::decode_192_128_fp16},
};

const DecodeInstance* find_instance(const DecodeAttention& p) {
  for (const DecodeInstance& one : kDecodeInstances)
    if (one.qk_head_dim == p.qk_head_dim && one.v_head_dim == p.v_head_dim &&
        one.element == p.element)
      return &one;
  return nullptr;
}

cudaError_t ask(DecodeCard& card) {
  int device = 0, major = 0;
  cudaError_t status = cudaGetDevice(&device);
  const auto attribute = [&](int& to, cudaDeviceAttr which) {
    if (status == cudaSuccess) status = cudaDeviceGetAttribute(&to, which, device);
  };
  attribute(card.num_sms, cudaDevAttrMultiProcessorCount);
  attribute(card.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  attribute(card.shared_bytes_of_sm, cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  attribute(major, cudaDevAttrComputeCapabilityMajor);
  card.clusters = major == 9;
  return status;
}

/// Whether rings keep what the first of the new tokens attends until the last is there.
bool rings_suffice(const DecodeAttention& p) {
  const auto suffices = [&](const RingKv& ring, int needed) {
    return ring.num_slots >= std::min(needed + p.tokens - 1, p.max_tokens);
  };
  return p.tokens == 1 || (suffices(p.window, p.window_size) &&
                           (!p.appends || suffices(p.append.source, p.block_size)));
}

bool appendable(const DecodeAppend& x) {
  return aligned(x.k_sel) && aligned(x.v_sel) && aligned(x.k_win) && aligned(x.v_win) &&
         aligned(x.k_cmp_src) && aligned(x.v_cmp_src);
}

}  // namespace

const char* unsupported_reason(const DecodeAttention& p) {
  if (p.num_kv_heads < 1 || p.num_heads % p.num_kv_heads != 0) return "Hkv must divide Hq";
  if (p.num_heads / p.num_kv_heads > 16) return "more than 16 query heads a KV head";
  if (p.gate_heads < 1 || p.num_heads % p.gate_heads != 0) return "gate heads must divide Hq";
  if (find_instance(p) == nullptr) return "head dims dk/dv are none of 64/64, 128/128, 192/128";
  if (p.top_n > 32) return "more than 32 selected blocks";
  if (!aligned(p.q) || (p.appends && !appendable(p.append)))
    return "an address or stride is no multiple of 16 bytes";
  if (p.tokens < 1 || p.tokens > kMostNewTokens) return "new tokens of a sequence are not 1 to 8";
  if (p.tokens > p.block_stride) return "more new tokens than block_stride";
  if (!rings_suffice(p)) return "rings have no slots for several new tokens";
  DecodeCard card;
  if (ask(card) != cudaSuccess) return "the CUDA device does not answer";
  if (plan_decode(p, card).ranks == 0) return "the logits of this many tokens do not fit on chip";
  return nullptr;
}

cudaError_t decode_attention(const DecodeAttention& p, cudaStream_t stream) {
  if (unsupported_reason(p) != nullptr) return cudaErrorInvalidValue;
  if (p.batch == 0) return cudaSuccess;
  DecodeCard card;
  const cudaError_t status = ask(card);
  return status == cudaSuccess ? find_instance(p)->launch(p, plan_decode(p, card), stream) : status;
}

}  // namespace nsa::kernels
