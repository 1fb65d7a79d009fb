#include "nsa/api/attention_stack.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <unordered_map>

namespace nsa {
namespace {

using c10::IValue;

/// One argument of the operators: its name, and how it goes to and from a call.
struct Field {
  std::string name;
  std::function<void(const IValue&, OperatorArguments&)> take;
  std::function<IValue(const OperatorArguments&)> give;
  bool is_differentiable = false;
};

at::Tensor tensor_or_none(const IValue& value) {
  return value.isNone() ? at::Tensor() : value.toTensor();
}

IValue optional(const at::Tensor& tensor) { return tensor.defined() ? IValue(tensor) : IValue(); }

/// A tensor; `of` gives its place in the arguments.
template <class Place>
Field tensor_field(const std::string& name, Place of) {
  return {name,
          [of](const IValue& value, OperatorArguments& to) { of(to) = tensor_or_none(value); },
          [of](const OperatorArguments& from) {
            return optional(of(const_cast<OperatorArguments&>(from)));
          }};
}

/// A number of the configuration.
template <class T>
Field number(const char* name, T Config::* member) {
  return {
      name,
      [=](const IValue& value, OperatorArguments& to) { to.call.config.*member = value.to<T>(); },
      [=](const OperatorArguments& from) { return IValue(from.call.config.*member); }};
}

/// Words of a choice, each as one value that all calls share: what this library has put on a stack
/// is known again by its place in memory.
template <class T>
class Words {
 public:
  explicit Words(std::initializer_list<T> choices) {
    for (const T choice : choices) words_.emplace_back(choice, to_string(choice));
  }
  const IValue& of(T choice) const {
    const auto found =
        std::ranges::find(words_, choice, [](const auto& word) { return word.first; });
    TORCH_INTERNAL_ASSERT(found != words_.end(), "nsa::attention: a choice without a word");
    return found->second;
  }
  T parse(const IValue& value, T (*from_text)(const std::string&)) const {
    const std::string& text = value.toStringRef();
    for (const auto& [choice, word] : words_)
      if (&word.toStringRef() == &text) return choice;
    return from_text(text);
  }

 private:
  std::vector<std::pair<T, IValue>> words_;
};

/// A choice of the configuration, as a word.
template <class T>
Field word(const char* name, T Config::* member, T (*parse)(const std::string&),
           std::initializer_list<T> choices) {
  const Words<T> words(choices);
  const auto take = [=](const IValue& value, OperatorArguments& to) {
    try {
      to.call.config.*member = words.parse(value, parse);
    } catch (const std::invalid_argument& error) {
      TORCH_CHECK_VALUE(false, "nsa::attention: ", name, ": ", error.what());
    }
  };
  return {name, take,
          [=](const OperatorArguments& from) { return words.of(from.call.config.*member); }};
}

void append_tensors(std::vector<Field>& fields) {
  for (size_t i = 0; i < kCallTensors.size(); ++i)
    fields.push_back(tensor_field(
        kCallTensors[i], [i](OperatorArguments& a) -> at::Tensor& { return a.call.tensors[i]; }));
  const auto tensor = [&](const char* name, auto of) { fields.push_back(tensor_field(name, of)); };
  tensor("qkv", [](OperatorArguments& a) -> at::Tensor& { return a.call.tensors[0]; });
  for (Field& field : fields) field.is_differentiable = true;
  tensor("d_o", [](OperatorArguments& a) -> at::Tensor& { return a.d_o; });
  tensor("block_idx", [](OperatorArguments& a) -> at::Tensor& { return a.call.block_idx; });
  tensor("cu_seqlens", [](OperatorArguments& a) -> at::Tensor& { return a.call.cu_seqlens; });
}

void append_config(std::vector<Field>& fields) {
  for (const auto& [name, member] :
       {std::pair{"block_size", &Config::block_size},
        std::pair{"block_stride", &Config::block_stride},
        std::pair{"sel_block_size", &Config::sel_block_size}, std::pair{"top_n", &Config::top_n},
        std::pair{"num_initial", &Config::num_initial}, std::pair{"num_local", &Config::num_local},
        std::pair{"window", &Config::window}})
    fields.push_back(number(name, member));
  for (const auto& [name, member] :
       {std::pair{"scale_cmp", &Config::scale_cmp}, std::pair{"scale_sel", &Config::scale_sel},
        std::pair{"scale_win", &Config::scale_win}})
    fields.push_back(number(name, member));
  fields.push_back(number("rope_base", &Config::rope_base));
  using Gate = GateActivation;
  fields.push_back(word("gate", &Config::gate, parse_gate_activation,
                        {Gate::kNone, Gate::kSoftmax, Gate::kSigmoid}));
  fields.push_back(word("rope", &Config::rope, parse_rope_mode,
                        {RopeMode::kBeforePool, RopeMode::kBlockStart, RopeMode::kNone}));
  fields.push_back(word("rope_pairs", &Config::rope_pairs, parse_rope_pairs,
                        {RopePairs::kInterleaved, RopePairs::kHalfSplit}));
}

/// A member of the columns of one projection.
template <class T>
Field column_field(const char* name, T QkvColumns::* member) {
  const auto take = [=](const IValue& value, OperatorArguments& to) {
    if (!to.call.columns) to.call.columns.emplace();
    (*to.call.columns).*member = value.to<T>();
  };
  return {name, take,
          [=](const OperatorArguments& from) { return IValue((*from.call.columns).*member); }};
}

void append_columns(std::vector<Field>& fields) {
  fields.push_back(column_field("num_heads", &QkvColumns::num_heads));
  fields.push_back(column_field("num_kv_heads", &QkvColumns::num_kv_heads));
  fields.push_back(column_field("v_head_dim", &QkvColumns::v_head_dim));
}

void take_wanted(const IValue& value, OperatorArguments& to) {
  const c10::List<bool> wanted = value.toBoolList();
  size_t next = 0;  // the columns of a projection stand before it in the schema
  for (const size_t place : to.gradient_places()) to.wanted[place] = wanted.get(next++);
}

IValue give_wanted(const OperatorArguments& from) {
  c10::List<bool> wanted;
  for (const size_t place : from.gradient_places()) wanted.push_back(from.wanted[place]);
  return wanted;
}

void append_others(std::vector<Field>& fields) {
  using To = OperatorArguments;
  const Words<Backend> backends({Backend::kAuto, Backend::kFused, Backend::kPlain});
  fields.push_back(
      {"backend",
       [=](const IValue& x, To& a) { a.call.backend = backends.parse(x, parse_backend); },
       [=](const To& a) { return backends.of(a.call.backend); }});
  fields.push_back({"strict", [](const IValue& x, To& a) { a.call.strict = x.toBool(); },
                    [](const To& a) { return IValue(a.call.strict); }});
  fields.push_back({"max_seqlen",
                    [](const IValue& x, To& a) { a.call.max_seqlen = x.toOptional<int64_t>(); },
                    [](const To& a) { return IValue(a.call.max_seqlen); }});
  fields.push_back({"keep", [](const IValue& x, To& a) { a.keep = x.toBool(); },
                    [](const To& a) { return IValue(a.keep); }});
  fields.push_back({"kept",
                    [](const IValue& x, To& a) {
                      if (!x.isNone()) a.kept = x.toTensorVector();
                    },
                    [](const To& a) { return a.kept.empty() ? IValue() : IValue(a.kept); }});
  fields.push_back({"wanted", take_wanted, give_wanted});
}

std::vector<Field> make_fields() {
  std::vector<Field> fields;
  append_tensors(fields);
  append_columns(fields);
  append_config(fields);
  append_others(fields);
  return fields;
}

/// What is known of a schema.
struct KnownSchema {
  std::vector<const Field*> fields;  ///< of its arguments; null for one that is not of the call
  ForwardPlaces places;
};

KnownSchema read_schema(const c10::FunctionSchema& schema) {
  static const std::vector<Field> all = make_fields();
  KnownSchema known;
  for (const c10::Argument& argument : schema.arguments()) {
    const auto found = std::ranges::find(all, argument.name(), &Field::name);
    const size_t place = known.fields.size();
    known.fields.push_back(found == all.end() ? nullptr : &*found);
    if (found == all.end()) continue;
    if (found->is_differentiable) known.places.tensors.push_back(place);
    if (found->name == "backend") known.places.backend = place;
    if (found->name == "gate") known.places.gate = place;
    if (found->name == "keep") known.places.keep = place;
    if (found->name == "cu_seqlens") known.places.cu_seqlens = place;
  }
  return known;
}

/// Read once: the operators stay registered, so that the place of a schema is its identity.
const KnownSchema& known_schema(const c10::FunctionSchema& schema) {
  static std::mutex mutex;
  static std::unordered_map<const c10::FunctionSchema*, KnownSchema> known;
  const std::lock_guard lock(mutex);
  KnownSchema& found = known[&schema];
  if (found.fields.empty()) found = read_schema(schema);
  return found;
}

}  // namespace

OperatorArguments OperatorArguments::pop(const c10::FunctionSchema& schema,
                                         torch::jit::Stack& stack) {
  OperatorArguments out;
  const std::vector<const Field*>& fields = known_schema(schema).fields;
  const auto values = torch::jit::last(stack, fields.size());
  for (size_t i = 0; i < fields.size(); ++i)
    if (fields[i] != nullptr) fields[i]->take(values[i], out);
  torch::jit::drop(stack, fields.size());
  out.call.take_tensor_sizes();
  return out;
}

void OperatorArguments::unpack() {
  call.unpack();
  if (call.columns) wanted[1] = wanted[2] = wanted[0];
}

std::vector<size_t> OperatorArguments::gradient_places() const {
  std::vector<size_t> places;
  for (size_t i = 0; i < kCallTensors.size(); ++i)
    if (!call.columns || (i != 1 && i != 2)) places.push_back(i);
  return places;
}

void OperatorArguments::push(const c10::FunctionSchema& schema, torch::jit::Stack& stack) const {
  const std::vector<const Field*>& fields = known_schema(schema).fields;
  stack.reserve(stack.size() + fields.size());
  for (const Field* field : fields) stack.push_back(field->give(*this));
}

const ForwardPlaces& forward_places(const c10::FunctionSchema& schema) {
  return known_schema(schema).places;
}

}  // namespace nsa
