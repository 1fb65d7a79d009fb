#include "nsa/decode/modes.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "nsa/decode/attended_keys.h"
#include "nsa/decode/output_rows.h"
#include "nsa/decode/sequential.h"
#include "nsa/decode/step/step_inputs.h"
#include "nsa/layer/nsa_inputs.h"
#include "nsa/ops/common/check.h"

namespace nsa {
namespace {

constexpr std::array<std::pair<Mode, const char*>, 3> kModeNames{
    {{Mode::kBatched, "batched"}, {Mode::kSequential, "sequential"}, {Mode::kDecode, "decode"}}};

std::vector<int64_t> checked_prefill(const NsaInputs& in, const NsaConfig& config,
                                     const std::vector<int64_t>& prefill) {
  const ArgumentCheck check("decode_attention");
  config.validate();
  check_inputs("decode_attention", in, config);
  if (in.cu_seqlens.defined()) {
    check.fail("cu_seqlens", "undefined (packed documents run in batched mode)", "a tensor");
  }
  const int64_t batch = in.q.size(0), num_tokens = in.q.size(1);
  if (prefill.empty()) return std::vector<int64_t>(static_cast<size_t>(batch), 0);
  if (static_cast<int64_t>(prefill.size()) != batch) {
    check.fail("prefill", std::to_string(batch) + " lengths, one a sequence",
               std::to_string(prefill.size()));
  }
  for (const int64_t length : prefill) {
    check.at_least("prefill", length, 0);
    if (length > num_tokens) {
      check.fail("prefill", "at most S = " + std::to_string(num_tokens), std::to_string(length));
    }
  }
  return prefill;
}

/// The sequences that have a token `step` tokens after their prefill, and where it stands.
struct StepTokens {
  StepTokens(const std::vector<int64_t>& prefill, int64_t step, int64_t num_tokens)
      : total(num_tokens) {
    for (size_t b = 0; b < prefill.size(); ++b) {
      if (prefill[b] + step >= num_tokens) continue;
      sequences.push_back(static_cast<int64_t>(b));
      positions.push_back(prefill[b] + step);
    }
    const auto same = [&](int64_t p) { return p == positions.front(); };
    together =
        sequences.size() == prefill.size() && std::all_of(positions.begin(), positions.end(), same);
  }
  /// [B, S, ...] -> [A, 1, ...]: a view when all sequences stand at the same token.
  at::Tensor of(const at::Tensor& x) const {
    if (together) return x.narrow(1, positions.front(), 1);
    std::vector<int64_t> rows;
    for (size_t i = 0; i < sequences.size(); ++i) {
      rows.push_back(sequences[i] * total + positions[i]);
    }
    const at::Tensor index = at::tensor(rows, at::kLong).to(x.device());
    return x.flatten(0, 1).index_select(0, index).unsqueeze(1);
  }
  int64_t total;
  std::vector<int64_t> sequences, positions;
  bool together;
};

}  // namespace

std::string to_string(Mode mode) {
  for (const auto& [value, name] : kModeNames) {
    if (value == mode) return name;
  }
  throw std::logic_error("mode without a name");
}

Mode parse_mode(const std::string& text) {
  std::string choices;
  for (const auto& [value, name] : kModeNames) {
    if (text == name) return value;
    choices += (choices.empty() ? "" : ", ") + std::string(name);
  }
  throw std::invalid_argument("mode must be one of " + choices + ", got '" + text + "'");
}

DecodeOutputs decode_rest(LayerCache& cache, const NsaInputs& in, const NsaConfig& config,
                          const DecodeOutputs& prefilled, const NsaOptions& options) {
  const int64_t batch = cache.num_sequences(), num_tokens = in.q.size(1);
  std::vector<int64_t> all, lengths;
  for (int64_t b = 0; b < batch; ++b) {
    all.push_back(b);
    lengths.push_back(cache.num_tokens(b));
  }
  OutputRows rows(batch, num_tokens);
  rows.add(prefilled, all, std::vector<int64_t>(all.size(), 0), lengths);
  const StepInputs inputs(in);
  for (int64_t step = 0; step < num_tokens; ++step) {
    const StepTokens tokens(lengths, step, num_tokens);
    if (tokens.sequences.empty()) break;
    const auto select = [&](const at::Tensor& x) { return tokens.of(x); };
    rows.add(cache.step(inputs.take(select), map_tokens(options, select), tokens.sequences),
             tokens.sequences, tokens.positions, std::vector<int64_t>(tokens.sequences.size(), 1));
  }
  return rows.join(config.num_sel_blocks(num_tokens));
}

DecodeOutputs decode_attention(const NsaInputs& in, const NsaConfig& config,
                               const NsaOptions& options, const std::vector<int64_t>& given,
                               const LayerCacheOptions& memory) {
  const auto record = c10::make_intrusive<RunRecord>(options.sdpa_audit, current_record());
  const RunRecordScope scope(record);
  const std::vector<int64_t> prefill = checked_prefill(in, config, given);
  const int64_t batch = in.q.size(0), num_tokens = in.q.size(1);
  const int64_t longest = batch > 0 ? *std::max_element(prefill.begin(), prefill.end()) : 0;
  LayerCacheOptions own_memory = memory;
  own_memory.wide_rows = memory.wide_rows || needs_gradient(in);
  LayerCache cache(config, batch, num_tokens, in.q.options().requires_grad(false), own_memory);
  const auto head = [&](const at::Tensor& x) { return x.narrow(1, 0, longest); };
  DecodeOutputs first = cache.prefill(map_tokens(in, head), prefill, map_tokens(options, head));
  first.reads = attended_keys(first, config);
  DecodeOutputs out = decode_rest(cache, in, config, first, options);
  out.record = record;
  out.ran = record->rows();
  out.sdpa_calls = record->sdpa_calls();
  std::vector<at::Tensor> k_cmp, v_cmp;
  for (int64_t b = 0; b < batch; ++b) {
    auto [k, v] = cache.blocks(b);
    k_cmp.push_back(k);
    v_cmp.push_back(v);
  }
  // B = 0 has shapes too.
  const NsaInputs no_sequences = narrow_tokens(in, 0, config.num_compressed(num_tokens));
  out.k_cmp = batch > 0 ? at::stack(k_cmp) : no_sequences.k_cmp_src;
  out.v_cmp = batch > 0 ? at::stack(v_cmp) : no_sequences.v_cmp_src;
  return out;
}

DecodeOutputs run_attention(Mode mode, const NsaInputs& inputs, const NsaConfig& config,
                            const NsaOptions& options, const std::vector<int64_t>& prefill,
                            const LayerCacheOptions& memory) {
  if (mode == Mode::kDecode) return decode_attention(inputs, config, options, prefill, memory);
  DecodeOutputs out;
  static_cast<NsaOutputs&>(out) = mode == Mode::kBatched
                                      ? nsa_attention(inputs, config, options)
                                      : sequential_attention(inputs, config, options);
  return out;
}

}  // namespace nsa
