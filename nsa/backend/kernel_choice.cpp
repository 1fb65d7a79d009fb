#include "nsa/backend/kernel_choice.h"

#include <algorithm>

#include "nsa/kernels/common/shared_bytes.h"
#include "nsa/kernels/common/size_limits.h"
#include "nsa/kernels/index/index_bytes.h"

namespace nsa {
namespace {

/// Whether the build holds machine code that the card runs.
bool has_machine_code(const CardFacts& card) {
  if (card.major == 8) return card.machine_code.sm80;
  return card.major == 9 && card.minor == 0 && card.machine_code.sm90a;
}

/// Whether PTX is all that the card can take. Not on 9.x, whose decode step runs in clusters.
bool needs_ptx(const CardFacts& card) {
  return card.machine_code.sm80_ptx && card.major >= 8 && card.major != 9 &&
         !has_machine_code(card);
}

void append(std::string& list, const std::string& item) {
  list += (list.empty() ? "" : ", ") + item;
}

/// Why the card runs no code of the build; empty where it does.
std::string missing_code(const CardFacts& card) {
  if (has_machine_code(card) || (needs_ptx(card) && card.compiles_ptx)) return "";
  const std::string own = std::to_string(card.major) + "." + std::to_string(card.minor);
  if (needs_ptx(card))
    return "on compute capability " + own +
           " the kernel is compiled from PTX, for which the driver is too old";
  std::string built;
  if (card.machine_code.sm80) append(built, "8.x");
  if (card.machine_code.sm90a) append(built, "9.0");
  if (card.machine_code.sm80_ptx) append(built, "10.0 and later");
  return "the kernel is built for compute capability " + (built.empty() ? "none" : built) +
         ", this card has " + own;
}

bool is_of_two_codes(KernelFamily family) {
  return family == KernelFamily::kInterval || family == KernelFamily::kSelectedKeys;
}
/// Head dims that no kernel has are the launcher's to name.
bool has_wgmma_code(const KernelCall& call) {
  const bool wide = kernels::have_kernels(call.qk_head_dim, call.v_head_dim) &&
                    !kernels::have_wgmma_kernels(call.qk_head_dim, call.v_head_dim);
  const bool wide_selection = call.selects && (call.wide_lists || call.group_size > 16);
  return is_of_two_codes(call.family) && !wide && !wide_selection;
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

/// `asked`: the call before its heads are padded.
std::string detail_of(const KernelCall& asked, const KernelCall& call, const CardFacts& card,
                      KernelCode code) {
  std::string detail;
  if (is_of_two_codes(call.family) && code == KernelCode::kSm80) append(detail, "sm_80");
  if (needs_ptx(card)) append(detail, "from PTX");
  if (call.qk_head_dim != asked.qk_head_dim || call.v_head_dim != asked.v_head_dim)
    append(detail,
           "padded to " + std::to_string(call.qk_head_dim) + "/" + std::to_string(call.v_head_dim));
  return detail;
}

std::string obstacle_on(const CardFacts& card, const KernelCall& call, KernelCode code) {
  if (!card.build_has_kernels) return "this build has no CUDA code";
  if (!card.is_cuda) return "the kernel runs on CUDA only";
  if (!call.sixteen_bits) return "the kernel takes bfloat16 and half only";
  if (std::string missing = missing_code(card); !missing.empty()) return missing;
  if (code == KernelCode::kSm90) return "";  // 9.0 has what its code asks for
  return shared_memory_obstacle(sm80_shared_bytes(call), card.shared_bytes);
}

}  // namespace

MachineCode machine_code_of(const std::string& architectures) {
  const std::string list = " " + architectures + " ";
  const auto has = [&](const std::string& name, const std::string& kind) {
    return list.find(" " + name + " ") != std::string::npos ||
           list.find(" " + name + kind + " ") != std::string::npos;
  };
  return {has("80", "-real"), has("90a", "-real"), has("80", "-virtual")};
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
  const bool wgmma = has_wgmma_code(call) && wanted_code != "sm80" && card.major == 9;
  const KernelCode code = wgmma ? KernelCode::kSm90 : KernelCode::kSm80;
  const std::string obstacle = obstacle_on(card, call, code);
  if (!obstacle.empty()) return {KernelCode::kNone, obstacle, ""};
  return {code, "", detail_of(asked, call, card, code)};
}

size_t sm80_shared_bytes(const KernelCall& call) {
  const auto of_dims = kernels::sm80::shared_bytes_of(call.qk_head_dim, call.v_head_dim);
  switch (call.family) {
    case KernelFamily::kInterval:  // a call and its backward pass run the same code
      return std::max(
          of_dims.interval_backward,
          kernels::sm80::interval_forward_bytes(call.qk_head_dim, call.v_head_dim, call.group_size,
                                                call.selects, call.wide_lists));
    case KernelFamily::kSelectedRows:
      return of_dims.rows;
    case KernelFamily::kSelectedKeys:
      return std::max(of_dims.selected_backward, kernels::sm80::tile_index_bytes(call.num_keys));
    case KernelFamily::kIndex:
      return kernels::kIndexBytes;
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
