#include "nsa/api/attention_stack.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace nsa {
namespace {

/// Integers of the configuration by the names of their arguments.
struct NamedSize {
  const char* name;
  int64_t Config::* member;
};
constexpr std::array<NamedSize, 7> kSizes = {{{"block_size", &Config::block_size},
                                              {"block_stride", &Config::block_stride},
                                              {"sel_block_size", &Config::sel_block_size},
                                              {"top_n", &Config::top_n},
                                              {"num_initial", &Config::num_initial},
                                              {"num_local", &Config::num_local},
                                              {"window", &Config::window}}};

/// Its numbers that may be absent.
struct NamedScale {
  const char* name;
  std::optional<double> Config::* member;
};
constexpr std::array<NamedScale, 3> kScales = {{{"scale_cmp", &Config::scale_cmp},
                                                {"scale_sel", &Config::scale_sel},
                                                {"scale_win", &Config::scale_win}}};

template <class Words>
auto as_value(const std::string& text, const char* name, Words parse) {
  try {
    return parse(text);
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, "nsa::attention: ", name, ": ", error.what());
  }
}

void take(const std::string& name, const c10::IValue& value, OperatorArguments& out) {
  AttentionCall& call = out.call;
  const auto tensor = [&] { return value.isNone() ? at::Tensor() : value.toTensor(); };
  for (size_t i = 0; i < kCallTensors.size(); ++i)
    if (name == kCallTensors[i]) call.tensors[i] = tensor();
  for (const NamedSize& size : kSizes)
    if (name == size.name) call.config.*size.member = value.toInt();
  for (const NamedScale& scale : kScales)
    if (name == scale.name) call.config.*scale.member = value.toOptional<double>();
  if (name == "d_o") out.d_o = tensor();
  if (name == "keep") out.keep = value.toBool();
  if (name == "kept" && !value.isNone()) out.kept = value.toTensorVector();
  if (name == "block_idx") call.block_idx = tensor();
  if (name == "cu_seqlens") call.cu_seqlens = tensor();
  if (name == "rope_base") call.config.rope_base = value.toDouble();
  if (name == "strict") call.strict = value.toBool();
  if (name == "backend") call.backend = parse_backend(value.toStringRef());
  if (name == "gate")
    call.config.gate = as_value(value.toStringRef(), "gate", parse_gate_activation);
  if (name == "rope") call.config.rope = as_value(value.toStringRef(), "rope", parse_rope_mode);
  if (name == "rope_pairs")
    call.config.rope_pairs = as_value(value.toStringRef(), "rope_pairs", parse_rope_pairs);
  if (name == "wanted")
    for (size_t i = 0; i < kCallTensors.size(); ++i) out.wanted[i] = value.toBoolList().get(i);
}

c10::IValue optional(const at::Tensor& tensor) {
  return tensor.defined() ? c10::IValue(tensor) : c10::IValue();
}

c10::IValue value_of(const std::string& name, const OperatorArguments& from) {
  const AttentionCall& call = from.call;
  for (size_t i = 0; i < kCallTensors.size(); ++i)
    if (name == kCallTensors[i]) return optional(call.tensors[i]);
  for (const NamedSize& size : kSizes)
    if (name == size.name) return call.config.*size.member;
  for (const NamedScale& scale : kScales)
    if (name == scale.name) return call.config.*scale.member;
  if (name == "d_o") return optional(from.d_o);
  if (name == "keep") return from.keep;
  if (name == "kept") return from.kept.empty() ? c10::IValue() : c10::IValue(from.kept);
  if (name == "block_idx") return optional(call.block_idx);
  if (name == "cu_seqlens") return optional(call.cu_seqlens);
  if (name == "rope_base") return call.config.rope_base;
  if (name == "strict") return call.strict;
  if (name == "backend") return to_string(call.backend);
  if (name == "gate") return to_string(call.config.gate);
  if (name == "rope") return to_string(call.config.rope);
  if (name == "rope_pairs") return to_string(call.config.rope_pairs);
  c10::List<bool> wanted;
  for (size_t i = 0; i < from.wanted.size(); ++i) wanted.push_back(from.wanted[i]);
  return wanted;
}

}  // namespace

OperatorArguments OperatorArguments::pop(const c10::FunctionSchema& schema,
                                         torch::jit::Stack& stack) {
  OperatorArguments out;
  const auto& arguments = schema.arguments();
  const auto values = torch::jit::last(stack, arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) take(arguments[i].name(), values[i], out);
  torch::jit::drop(stack, arguments.size());
  out.call.take_tensor_sizes();
  return out;
}

void OperatorArguments::push(const c10::FunctionSchema& schema, torch::jit::Stack& stack) const {
  for (const c10::Argument& argument : schema.arguments())
    stack.push_back(value_of(argument.name(), *this));
}

}  // namespace nsa
