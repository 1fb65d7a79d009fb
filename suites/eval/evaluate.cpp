#include "suites/eval/evaluate.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "nsa/backend/kernel_code.h"
#include "nsa/ops/common/check.h"
#include "nsa/program/input_error.h"
#include "nsa/program/open_device.h"
#include "suites/eval/backends.h"
#include "suites/eval/layer_config.h"
#include "suites/eval/operators.h"
#include "suites/eval/record.h"
#include "suites/eval/tensors.h"

namespace suites::eval {
namespace {

at::ScalarType parse_dtype(const std::string& name) {
  return name == "fp64"   ? at::kDouble
         : name == "fp32" ? at::kFloat
         : name == "bf16" ? at::kBFloat16
                          : at::kHalf;
}

CaseConfig read_config(const TensorFile& in, const std::string& overriding) {
  const auto metadata = in.metadata.find("config");
  if (metadata == in.metadata.end() && overriding.empty())
    throw nsa::InputError(
        "config: the input file has no metadata key 'config'; give --config FILE");
  return parse_case_config(metadata == in.metadata.end() ? "" : metadata->second, overriding);
}

void check_length(const char* key, const std::optional<int64_t>& given, int64_t tensors,
                  const std::string& carrier) {
  if (given && *given != tensors)
    throw nsa::InputError(std::string("config: ") + key + " must be " + std::to_string(tensors) +
                          " as in the shape of " + carrier + ", got " + std::to_string(*given));
}

/// B and S, or T and the documents, from the tensor that carries them.
Layout read_layout(const Operator& op, const CaseConfig& given, InputTensors& in) {
  const auto found =
      std::ranges::find_if(op.carriers, [&](const std::string& name) { return in.has(name); });
  const std::string carrier = found == op.carriers.end() ? op.carriers.back() : *found;
  const bool packed = given.kind == "varlen" || in.has("cu_seqlens");
  if (packed) in.shape("cu_seqlens");
  const std::vector<int64_t>& shape = in.shape(carrier);
  if (shape.size() != (packed ? 3 : 4))
    throw nsa::InputError(
        carrier + ": must be of rank " +
        (packed ? "3 [T, heads, .] with cu_seqlens" : "4 [B, S, heads, .] without cu_seqlens") +
        ", got rank " + std::to_string(shape.size()));
  Layout layout{packed ? 1 : shape[0], packed ? shape[0] : shape[1], {}};
  check_length("B", given.batch, layout.batch, carrier);
  check_length("S", given.tokens, layout.tokens, carrier);
  if (packed)
    layout.offsets =
        nsa::document_offsets("eval", in.indices("cu_seqlens", {{"docs + 1", -1}}), layout.tokens);
  return layout;
}

/// n may exceed the number of blocks, and every row has n places.
void check_width(const Evaluation& run) {
  constexpr double kMost = 2147483648.0;
  const double ids =
      static_cast<double>(run.layout.batch) * static_cast<double>(run.layout.tokens) *
      static_cast<double>(run.config.num_kv_heads) * static_cast<double>(run.config.top_n);
  if (!(ids <= kMost))
    throw nsa::InputError("config: cfg.n = " + std::to_string(run.config.top_n) +
                          " makes block_idx of more than 2^31 elements; choose a smaller n");
}

/// d_NAME of every leaf; 0 where nothing depends on it.
void add_gradients(Evaluation& run) {
  torch::autograd::variable_list outputs, gradients;
  for (const auto& [output, gradient] : run.seeds) {
    outputs.push_back(output);
    gradients.push_back(gradient);
  }
  torch::autograd::backward(outputs, gradients);
  for (const auto& [name, leaf] : run.in.leaves())
    run.results["d_" + name] = leaf.grad().defined() ? leaf.grad() : at::zeros_like(leaf);
}

void check_options(const EvalOptions& options, const Operator& op, const std::string& mode) {
  if (op.name != "layer" && mode != "batched")
    throw nsa::InputError("--mode " + mode + ": --op " + op.name +
                          " has no modes, only --op layer has");
  if (mode != "decode" && !options.prefill.empty())
    throw nsa::InputError("--prefill belongs to --mode decode, the mode is " + mode);
  if (options.grad && !op.differentiable)
    throw nsa::InputError("--grad: --op " + op.name +
                          " has no gradient; scores, block_idx and ranges are detached");
  if (options.grad && mode == "decode")
    throw nsa::InputError("--grad: --mode decode keeps no graph; use batched or sequential");
}

/// --mode, else decode for a file of that kind, unless what is asked for exists in batched only.
std::string mode_of(const EvalOptions& options, const Operator& op, const CaseConfig& given,
                    const TensorFile& file) {
  if (!options.mode.empty()) return options.mode;
  const bool decode = op.name == "layer" && given.kind == "decode";
  return decode && !options.grad && !file.has("ranges") ? "decode" : "batched";
}

}  // namespace

Evaluated evaluate(TensorFile file, const EvalOptions& options, const std::string& overriding) {
  const CaseConfig given = read_config(file, overriding);
  const Operator& op = find_operator(options.op, given.kind);
  const std::string mode = mode_of(options, op, given, file);
  check_options(options, op, mode);
  const at::Device device = nsa::open_device(options.device);
  const nsa::SwitchSet switches = switches_for(op.name, mode);
  nsa::want_kernels(switches.get_text("NSA_KERNELS"), device);

  InputTensors in(std::move(file.tensors), parse_dtype(options.dtype), device, options.grad);
  const nsa::NsaConfig config = layer_config(given);
  Evaluation run{options, given,
                 config,  read_layout(op, given, in),
                 in,      backends_for(op.name, options.backend, switches),
                 mode};
  run.record = c10::make_intrusive<nsa::RunRecord>(run.backends.sdpa_audit);
  const nsa::RunRecordScope scope(run.record);
  check_width(run);
  op.run(run);
  if (options.grad) add_gradients(run);

  Evaluated out;
  out.warnings = warnings_of(run);
  if (const std::string unread = in.unread(); !unread.empty())
    out.warnings.push_back("the input has tensors that are not read: " + unread);
  for (const auto& [name, tensor] : run.results) out.file.tensors[name] = from_aten(tensor);
  out.file.metadata = record_of(run, op.name, switches);
  return out;
}

}  // namespace suites::eval
