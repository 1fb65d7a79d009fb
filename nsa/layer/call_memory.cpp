#include "nsa/layer/call_memory.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/machine/host_memory.h"
#include "nsa/ops/common/operator_call.h"
#include "nsa/ops/cpu/call_workspace.h"

namespace nsa {
namespace {

/// Below it a call does not ask how much memory is left.
constexpr double kUnaskedBytes = 256.0 * (1 << 20);

/// Bytes of the tensors of one call.
struct TensorBytes {
  TensorBytes(const NsaConfig& c, const CpuCall& call) {
    const auto tokens = static_cast<double>(call.batch * call.tokens);
    const auto e = static_cast<double>(call.value_bytes), sum = std::max(4.0, e);
    const auto heads = static_cast<double>(c.num_heads), kv = static_cast<double>(c.num_kv_heads);
    const auto dk = static_cast<double>(c.qk_head_dim), dv = static_cast<double>(c.v_head_dim);
    const auto blocks = static_cast<double>(call.batch * c.num_compressed(call.tokens));
    q = tokens * heads * dk * e;
    keys = tokens * kv * dk * e;
    values = tokens * kv * dv * e;
    output = tokens * heads * dv * e;
    sums = tokens * heads * dv * sum;
    rows = tokens * heads * sum;
    compressed = blocks * kv * (dk + dv) * e;
    // Ids and ranges of the chosen blocks.
    chosen = 12 * tokens * kv * static_cast<double>(c.top_n);
  }
  double q, keys, values, output;
  double sums;  ///< an output in the type of sums
  double rows;  ///< a number a row
  double compressed, chosen;
};

}  // namespace

double cpu_call_bytes(const NsaConfig& config, const CpuCall& call) {
  const TensorBytes x(config, call);
  const bool rotates = config.rope != RopeMode::kNone;
  // Outputs and log-sum-exp of the branches, blocks and what rotation makes of q and keys.
  const double branches =
      3 * (x.output + x.rows) + x.compressed + x.chosen + (rotates ? x.q + 2 * x.keys : 0);
  const auto workspace = [&](bool backward) {
    return call.kernels ? cpu::workspace_bytes(config, call.batch, call.tokens, backward) : 0;
  };
  // Where sums are wider than outputs, copies of outputs in their type.
  const bool widens = x.sums > x.output;
  // Either the last branch runs, or the products of gates and outputs, and two sums of them, exist.
  const double forward =
      branches + std::max(workspace(false) + (widens ? x.sums : 0),
                          call.kernels ? 5 * x.sums + (widens ? x.output : 0) : x.output);
  if (!call.gradient) return forward;
  // The output and its gradient, and either what the gates are differentiated with or, in the place
  // of the branches' outputs, gradients of two of them and of what the first two branches read.
  const double gates = (widens ? 3 : 0) * x.sums + 3 * x.sums;
  const double read = 2 * x.q - x.output + x.keys + x.values + workspace(true);
  return std::max(forward, branches + 2 * x.output + std::max(gates, read));
}

void require_memory(const NsaInputs& in, const NsaConfig& config, const NsaOptions& options,
                    bool kept) {
  if (!in.q.is_cpu()) return;
  const bool packed = in.cu_seqlens.defined();
  CpuCall call;
  call.batch = packed ? 1 : in.q.size(0);
  call.tokens = in.q.size(packed ? 0 : 1);
  call.value_bytes = static_cast<int64_t>(in.q.element_size());
  // Batches of documents have their workspace one after the other.
  call.kernels = options.cmp == BranchBackend::kCpu && !packed;
  call.gradient = kept || needs_gradient({in.q, in.k_cmp_src, in.v_cmp_src, in.k_sel, in.v_sel,
                                          in.k_win, in.v_win, in.gate_logits});
  const double bytes = cpu_call_bytes(config, call);
  if (!(bytes > kUnaskedBytes)) return;
  const auto available = base::available_memory();
  if (!available || bytes <= static_cast<double>(*available)) return;
  TORCH_CHECK_WITH(OutOfMemoryError, false, "nsa::attention: q of shape ", in.q.sizes(), " in ",
                   in.q.scalar_type(), " must make a call that fits into memory, but ",
                   call.gradient ? "forward and backward take " : "it takes ",
                   base::gib_text(bytes), " beyond the inputs and ",
                   base::gib_text(static_cast<double>(*available)),
                   " are available; use shorter or fewer sequences a call",
                   call.value_bytes > 2 ? ", or bf16" : "");
}

}  // namespace nsa
