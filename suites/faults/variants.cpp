#include "suites/faults/variants.h"

#include <ATen/ATen.h>

#include <array>

#include "nsa/decode/modes.h"
#include "nsa/ops/selected/sel_attn.h"
#include "nsa/ops/window/win_attn.h"
#include "suites/faults/documents.h"

namespace suites {
namespace {

using at::Tensor;

/// A backend of the selected branch, alone and in the layer.
template <nsa::SelBackend backend, bool safe_pack = true>
Candidate selected_by() {
  Candidate c = plain_candidate();
  c.sel_attn = [](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& ranges,
                  int64_t first) {
    return nsa::sel_attn(q, k, v, ranges, first, {.backend = backend, .safe_pack = safe_pack});
  };
  c.layer = [](const nsa::NsaInputs& inputs, const nsa::NsaConfig& config,
               const nsa::NsaOptions& options) {
    nsa::NsaOptions own = options;
    own.sel = backend;
    own.safe_pack = safe_pack;
    return nsa::nsa_attention(inputs, config, own);
  };
  c.runs["sel_attn"] = nsa::to_string(backend);
  c.differentiable = safe_pack;
  return c;
}

template <nsa::BranchBackend backend>
Candidate window_by() {
  Candidate c = plain_candidate();
  c.win_attn = [](const Tensor& q, const Tensor& k, const Tensor& v, int64_t window,
                  int64_t first) {
    return nsa::win_attn(q, k, v, window, first, {.backend = backend});
  };
  c.layer = [](const nsa::NsaInputs& inputs, const nsa::NsaConfig& config,
               const nsa::NsaOptions& options) {
    nsa::NsaOptions own = options;
    own.win = backend;
    return nsa::nsa_attention(inputs, config, own);
  };
  // A shape or type that the library refuses runs plain with a record: no path to prove.
  c.runs.erase("win_attn");
  return c;
}

/// A candidate that is judged by its layer alone.
template <class Layer>
Candidate whole(Layer layer) {
  Candidate c = plain_candidate();
  c.whole = true;
  c.layer = layer;
  c.runs.clear();
  return c;
}

/// The kernels of the selected and the window branch; of types and sizes that they do not cover the
/// plain operators run, with a record: no path to prove.
Candidate fused() {
  Candidate c = selected_by<nsa::SelBackend::kFused>();
  c.win_attn = window_by<nsa::BranchBackend::kFused>().win_attn;
  c.layer = [](const nsa::NsaInputs& inputs, const nsa::NsaConfig& config,
               const nsa::NsaOptions& options) {
    nsa::NsaOptions own = options;
    own.sel = nsa::SelBackend::kFused;
    own.win = nsa::BranchBackend::kFused;
    return nsa::nsa_attention(inputs, config, own);
  };
  c.runs.clear();
  return c;
}

/// The CPU kernels of the selected and the window branch, each by itself and in the layer, where
/// scores are asked for: those come from the plain compressed branch. fp64 runs plain, with a
/// record.
Candidate cpu() {
  Candidate c = selected_by<nsa::SelBackend::kCpu>();
  c.win_attn = window_by<nsa::BranchBackend::kCpu>().win_attn;
  c.layer = [](const nsa::NsaInputs& inputs, const nsa::NsaConfig& config,
               const nsa::NsaOptions& options) {
    nsa::NsaOptions own = options;
    own.sel = nsa::SelBackend::kCpu;
    own.win = nsa::BranchBackend::kCpu;
    return nsa::nsa_attention(inputs, config, own);
  };
  c.runs.clear();
  return c;
}

/// The layer as backend auto of the public call runs it on a CPU: the kernels choose the blocks,
/// and leave no scores.
Candidate cpu_selection() {
  return whole([](const nsa::NsaInputs& inputs, const nsa::NsaConfig& config,
                  const nsa::NsaOptions& options) {
    nsa::NsaOptions own = options;
    own.sel = nsa::SelBackend::kCpu;
    own.win = own.cmp = nsa::BranchBackend::kCpu;
    own.keep_scores = false;
    return nsa::nsa_attention(inputs, config, own);
  });
}

Candidate sequential() {
  return whole([](const nsa::NsaInputs& inputs, const nsa::NsaConfig& config,
                  const nsa::NsaOptions& options) -> nsa::NsaOutputs {
    return nsa::run_attention(nsa::Mode::kSequential, inputs, config, options);
  });
}

Candidate decode() {
  return whole([](const nsa::NsaInputs& inputs, const nsa::NsaConfig& config,
                  const nsa::NsaOptions& options) -> nsa::NsaOutputs {
    return nsa::run_attention(nsa::Mode::kDecode, inputs, config, options);
  });
}

Candidate decode_varlen() {
  return whole([](const nsa::NsaInputs& inputs, const nsa::NsaConfig& config,
                  const nsa::NsaOptions& options) -> nsa::NsaOutputs {
    nsa::NsaOptions own = options;
    own.sel = nsa::SelBackend::kVarlen;
    return nsa::run_attention(nsa::Mode::kDecode, inputs, config, own);
  });
}

/// Every branch by its kernel, or an error: nothing else may run. The kernel leaves no scores.
Candidate kernels() {
  return whole([](const nsa::NsaInputs& inputs, const nsa::NsaConfig& config,
                  const nsa::NsaOptions& options) {
    nsa::NsaOptions own = options;
    own.sel = nsa::SelBackend::kFused;
    own.win = own.cmp = nsa::BranchBackend::kFused;
    own.strict_backend = true;
    own.keep_scores = false;
    return nsa::nsa_attention(inputs, config, own);
  });
}

/// Every sequence of the batch is prefilled to a length of its own.
Candidate prefill_decode() {
  return whole([](const nsa::NsaInputs& inputs, const nsa::NsaConfig& config,
                  const nsa::NsaOptions& options) -> nsa::NsaOutputs {
    const int64_t tokens = inputs.q.size(1);
    std::vector<int64_t> prefill;
    for (int64_t b = 0; b < inputs.q.size(0); ++b)
      prefill.push_back((tokens / 2 + b) % (tokens + 1));
    return nsa::run_attention(nsa::Mode::kDecode, inputs, config, options, prefill,
                              {.layout = nsa::CacheLayout::kContiguous});
  });
}

template <nsa::SelBackend backend>
Candidate documents() {
  return whole([](const nsa::NsaInputs& inputs, const nsa::NsaConfig& config,
                  const nsa::NsaOptions& options) {
    nsa::NsaOptions own = options;
    own.sel = backend;
    return as_documents(nsa::nsa_attention, inputs, config, own);
  });
}

}  // namespace

const std::vector<Variant>& variants() {
  using nsa::BranchBackend;
  using nsa::SelBackend;
  static const std::vector<Variant> all = {
      {"gather", plain_candidate},
      {"packed", selected_by<SelBackend::kPacked>},
      {"packed_workspace", selected_by<SelBackend::kPacked, false>},
      {"varlen", selected_by<SelBackend::kVarlen>},
      {"masked", selected_by<SelBackend::kMasked>},
      {"window_flash", window_by<BranchBackend::kFlash>, true},
      {"window_cudnn", window_by<BranchBackend::kCudnn>, true},
      {"fused", fused, true},
      {"kernels", kernels, true, true},
      {"sequential", sequential},
      {"decode", decode},
      {"decode_varlen", decode_varlen},
      {"prefill_decode", prefill_decode},
      {"documents_gather", documents<SelBackend::kGather>},
      {"documents_varlen", documents<SelBackend::kVarlen>},
      {"cpu", cpu},
      {"cpu_selection", cpu_selection},
  };
  return all;
}

}  // namespace suites
