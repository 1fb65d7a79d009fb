#include "nsa/backend/kernel_choice.h"

#include <algorithm>

#include "nsa/kernels/common/shared_bytes.h"
#include "nsa/kernels/common/size_limits.h"

namespace nsa {
namespace {

/// Whether the build holds machine code that the card runs.
bool has_machine_code(const CardFacts& card) {
  if (card.major == 8) return card.machine_code.sm80;
  return card.major == 9 && card.minor == 0 && card.machine_code.sm90a;
}

std::string missing_machine_code(const CardFacts& card) {
  std::string built = card.machine_code.sm80 ? "8.x" : "";
  if (card.machine_code.sm90a) built += built.empty() ? "9.0" : " and 9.0";
  return "the kernel is built for compute capability " + (built.empty() ? "none" : built) +
         ", this card has " + std::to_string(card.major) + "." + std::to_string(card.minor);
}

bool has_wgmma_code(KernelFamily family) {
  return family == KernelFamily::kInterval || family == KernelFamily::kSelectedKeys;
}

/// Whether heads of other dims are padded: of whole sequences. A decode step reads caches in place.
bool pads_heads(KernelFamily family) {
  return family == KernelFamily::kInterval || family == KernelFamily::kSelectedRows ||
         family == KernelFamily::kSelectedKeys;
}

/// The call as it is computed.
KernelCall computed_call(KernelCall call) {
  if (!pads_heads(call.family)) return call;
  const auto dims = kernels::computed_head_dims(call.qk_head_dim, call.v_head_dim);
  call.qk_head_dim = dims.qk, call.v_head_dim = dims.v;
  return call;
}

std::string detail_of(const KernelCall& asked, const KernelCall& computed, bool names_code) {
  std::string detail = names_code ? "sm_80" : "";
  if (computed.qk_head_dim != asked.qk_head_dim || computed.v_head_dim != asked.v_head_dim)
    detail += (detail.empty() ? "padded to " : ", padded to ") +
              std::to_string(computed.qk_head_dim) + "/" + std::to_string(computed.v_head_dim);
  return detail;
}

std::string obstacle_on(const CardFacts& card, const KernelCall& call, KernelCode code) {
  if (!card.build_has_kernels) return "this build has no CUDA code";
  if (!card.is_cuda) return "the kernel runs on CUDA only";
  if (!call.sixteen_bits) return "the kernel takes bfloat16 and half only";
  if (!has_machine_code(card)) return missing_machine_code(card);
  if (code == KernelCode::kSm90) return "";  // 9.0 has what its code asks for
  return shared_memory_obstacle(sm80_shared_bytes(call), card.shared_bytes);
}

}  // namespace

MachineCode machine_code_of(const std::string& architectures) {
  const std::string list = " " + architectures + " ";
  const auto has = [&](const std::string& name) {  // virtual code would be compiled at load
    return list.find(" " + name + " ") != std::string::npos ||
           list.find(" " + name + "-real ") != std::string::npos;
  };
  return {has("80"), has("90a")};
}

KernelChoice KernelChoice::unless(const std::string& reason) const {
  if (!runs() || reason.empty()) return *this;
  return {KernelCode::kNone, reason, ""};
}

KernelChoice KernelChoice::unless(const char* reason) const {
  return reason == nullptr ? *this : unless(std::string(reason));
}

KernelChoice choose_kernel(const KernelCall& asked, const CardFacts& card,
                           const std::string& wanted_code) {
  const KernelCall call = computed_call(asked);
  const bool two_codes = has_wgmma_code(call.family);
  const bool wgmma = two_codes && wanted_code != "sm80" && card.major == 9;
  const KernelCode code = wgmma ? KernelCode::kSm90 : KernelCode::kSm80;
  const std::string obstacle = obstacle_on(card, call, code);
  if (!obstacle.empty()) return {KernelCode::kNone, obstacle, ""};
  return {code, "", detail_of(asked, call, two_codes && !wgmma)};
}

size_t sm80_shared_bytes(const KernelCall& call) {
  const auto of_dims = kernels::sm80::shared_bytes_of(call.qk_head_dim, call.v_head_dim);
  switch (call.family) {
    case KernelFamily::kInterval:  // a call and its backward pass run the same code
      return std::max(of_dims.interval_backward,
                      kernels::sm80::interval_forward_bytes(call.qk_head_dim, call.v_head_dim,
                                                            call.group_size, call.selects));
    case KernelFamily::kSelectedRows:
      return of_dims.rows;
    case KernelFamily::kSelectedKeys:
      return std::max(of_dims.selected_backward, kernels::sm80::tile_index_bytes(call.num_keys));
    case KernelFamily::kDecodeStep:  // fits what it keeps on chip to the card (plan_decode)
    case KernelFamily::kTokens:      // 85 KB at most, of the gate MLP
      return 0;
  }
  return 0;
}

std::string shared_memory_obstacle(size_t asked, size_t has) {
  if (asked <= has) return "";
  return "the kernels take up to " + std::to_string((asked + 1023) / 1024) +
         " KB of shared memory a block, this card has " + std::to_string(has / 1024);
}

}  // namespace nsa
