// The registered operator nsa::decode_: a decode step, or a prefill, with caches, page tables and
// lengths that the caller owns.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <algorithm>
#include <string>
#include <vector>

#include "nsa/api/attention_stack.h"
#include "nsa/api/cache_access.h"
#include "nsa/api/check_attention.h"
#include "nsa/api/operator_schema.h"
#include "nsa/decode/step/graph_capture.h"
#include "nsa/ops/common/check.h"

namespace nsa {
namespace {

using c10::DispatchKeySet;
using c10::OperatorHandle;
using torch::jit::Stack;

const std::string kDecodeSchema =
    std::string("decode_(Tensor q, Tensor k, Tensor v, Tensor gates, Tensor(a!) k_pages, ") +
    "Tensor(b!) v_pages, Tensor(c!) k_cmp_pages, Tensor(d!) v_cmp_pages, Tensor(e!) k_window, "
    "Tensor(f!) v_window, Tensor(g!) k_recent, Tensor(h!) v_recent, Tensor page_table, "
    "Tensor cmp_page_table, Tensor(i!) num_tokens, Tensor? k_sel=None, Tensor? v_sel=None, "
    "Tensor? k_win=None, Tensor? v_win=None, Tensor? block_idx=None, int[]? lengths=None, " +
    kSettings + ") -> Tensor";

/// Arguments of a call: those of the tokens and settings as for attention, and the caches.
struct DecodeArguments {
  OperatorArguments tokens;
  at::Tensor k_pages, v_pages, k_cmp_pages, v_cmp_pages, k_window, v_window, k_recent, v_recent;
  at::Tensor page_table, cmp_page_table, num_tokens;
  std::vector<int64_t> lengths;

  const AttentionCall& call() const { return tokens.call; }
};

DecodeArguments read(const OperatorHandle& op, const Stack& stack) {
  DecodeArguments out;
  const auto& arguments = op.schema().arguments();
  const auto values = torch::jit::last(stack, arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i].name();
    for (const auto& [wanted, place] :
         {std::pair<const char*, at::Tensor*>{"k_pages", &out.k_pages},
          {"v_pages", &out.v_pages},
          {"k_cmp_pages", &out.k_cmp_pages},
          {"v_cmp_pages", &out.v_cmp_pages},
          {"k_window", &out.k_window},
          {"v_window", &out.v_window},
          {"k_recent", &out.k_recent},
          {"v_recent", &out.v_recent},
          {"page_table", &out.page_table},
          {"cmp_page_table", &out.cmp_page_table},
          {"num_tokens", &out.num_tokens}})
      if (name == wanted) *place = values[i].toTensor();
    if (name == "lengths" && !values[i].isNone()) out.lengths = values[i].toIntVector();
  }
  Stack copy(values.begin(), values.end());
  out.tokens = OperatorArguments::pop(op.schema(), copy);
  return out;
}

// ---- what is refused

const ArgumentCheck kDecodeCheck("decode_");

void check_rows(const char* name, const at::Tensor& x, const at::Tensor& tokens, int64_t first,
                const char* legend) {
  kDecodeCheck.rank(name, x, 4, legend);
  kDecodeCheck.sizes(name, x, {first, -1, tokens.size(2), tokens.size(3)}, legend);
  kDecodeCheck.same_dtype(name, x, "k", tokens);
  kDecodeCheck.same_device(name, x, "k", tokens);
  if (!x.is_contiguous()) kDecodeCheck.fail(name, "contiguous", "strides of a view");
}

void check_integers(const char* name, const at::Tensor& x, const at::Tensor& beside) {
  if (x.scalar_type() != at::kInt && x.scalar_type() != at::kLong)
    kDecodeCheck.fail_type(name, "int32 or int64", x.scalar_type());
  kDecodeCheck.same_device(name, x, "k", beside);
}

/// Keys and values of one kind of memory: as many rows in both.
void check_pair(const char* k_name, const at::Tensor& k_rows, const char* v_name,
                const at::Tensor& v_rows, const DecodeArguments& a, int64_t first,
                const std::string& legend) {
  check_rows(k_name, k_rows, a.call().tensors[1], first, (legend + ", Hkv, dk]").c_str());
  check_rows(v_name, v_rows, a.call().tensors[2], k_rows.size(0), (legend + ", Hkv, dv]").c_str());
  if (v_rows.size(1) != k_rows.size(1))
    kDecodeCheck.fail(
        v_name,
        "as long as " + std::string(k_name) + " = " + std::to_string(k_rows.size(1)) + " on axis 1",
        std::to_string(v_rows.size(1)));
}

void check_memory(const DecodeArguments& a) {
  const Config& config = a.call().config;
  const int64_t batch = a.call().q().size(0);
  check_pair("k_pages", a.k_pages, "v_pages", a.v_pages, a, -1, "[pages, page size");
  check_pair("k_cmp_pages", a.k_cmp_pages, "v_cmp_pages", a.v_cmp_pages, a, -1,
             "[pages, page size");
  check_pair("k_window", a.k_window, "v_window", a.v_window, a, batch, "[A, slots");
  check_pair("k_recent", a.k_recent, "v_recent", a.v_recent, a, batch, "[A, slots");
  kDecodeCheck.sizes("page_table", a.page_table, {batch, -1}, "[A, pages]");
  kDecodeCheck.sizes("cmp_page_table", a.cmp_page_table, {batch, -1}, "[A, pages]");
  kDecodeCheck.sizes("num_tokens", a.num_tokens, {batch}, "[A]");
  check_integers("page_table", a.page_table, a.k_pages);
  check_integers("cmp_page_table", a.cmp_page_table, a.k_pages);
  check_integers("num_tokens", a.num_tokens, a.k_pages);
  kDecodeCheck.at_least("page size (axis 1) of k_pages", a.k_pages.size(1), 1);
  kDecodeCheck.at_least("page size (axis 1) of k_cmp_pages", a.k_cmp_pages.size(1), 1);
  const int64_t capacity = a.page_table.size(1) * a.k_pages.size(1);
  kDecodeCheck.at_least("slots (axis 1) of k_window", a.k_window.size(1),
                        std::min(config.window, capacity));
  kDecodeCheck.at_least("slots (axis 1) of k_recent", a.k_recent.size(1), config.block_size);
}

/// Every page that the new tokens, and the blocks that end with them, need: a table on the host.
void check_pages(const char* name, const at::Tensor& table, int64_t page_size, int64_t num_pages,
                 const std::vector<int64_t>& rows) {
  const at::Tensor host = table.to(at::kLong).cpu();
  const auto page = host.accessor<int64_t, 2>();
  for (int64_t a = 0; a < host.size(0); ++a) {
    const int64_t need = (rows[static_cast<size_t>(a)] + page_size - 1) / page_size;
    const std::string of = " of sequence " + std::to_string(a);
    if (need > host.size(1))
      kDecodeCheck.fail(name + of, "wide enough for its " + std::to_string(need) + " pages",
                        std::to_string(host.size(1)) + " columns");
    for (int64_t i = 0; i < need; ++i)
      if (page[a][i] < 0 || page[a][i] >= num_pages)
        kDecodeCheck.fail(
            name + of,
            "a page in 0.." + std::to_string(num_pages - 1) + " at column " + std::to_string(i),
            std::to_string(page[a][i]));
  }
}

// ---- CPU and CUDA

KvRows rows_of(const at::Tensor& k, const at::Tensor& v) {
  return {k.view({k.size(0) * k.size(1), k.size(2), k.size(3)}),
          v.view({v.size(0) * v.size(1), v.size(2), v.size(3)}), k.scalar_type()};
}

/// Caches over the caller's memory; `before`: tokens of the sequences, empty where unknown.
LayerCache caches_over(const DecodeArguments& a, const at::Tensor& num_tokens,
                       const std::vector<int64_t>& before) {
  return LayerCache(a.call().config, {.selected = rows_of(a.k_pages, a.v_pages),
                                      .compressed = rows_of(a.k_cmp_pages, a.v_cmp_pages),
                                      .window = rows_of(a.k_window, a.v_window),
                                      .source = rows_of(a.k_recent, a.v_recent),
                                      .page_size = a.k_pages.size(1),
                                      .block_page_size = a.k_cmp_pages.size(1),
                                      .page_table = a.page_table.to(at::kLong),
                                      .block_page_table = a.cmp_page_table.to(at::kLong),
                                      .num_tokens = num_tokens,
                                      .num_tokens_on_host = before,
                                      .new_tokens = a.call().q().size(1)});
}

/// What a call must be that a CUDA graph captures: nothing is read on the host then.
void check_captured(const DecodeArguments& a) {
  const std::string captured = " of a call that a CUDA graph captures";
  const int64_t tokens = a.call().q().size(1);
  if (tokens < 1 || tokens > kMostNewTokens)
    kDecodeCheck.fail("tokens a sequence (axis 1 of q)" + captured,
                      "1 to " + std::to_string(kMostNewTokens), std::to_string(tokens));
  if (!a.lengths.empty())
    kDecodeCheck.fail("lengths" + captured, "absent",
                      std::to_string(a.lengths.size()) + " of them");
  const int64_t capacity = a.page_table.size(1) * a.k_pages.size(1);
  const int64_t have = a.cmp_page_table.size(1) * a.k_cmp_pages.size(1);
  const int64_t need = a.call().config.num_compressed(capacity);
  if (have < need)
    kDecodeCheck.fail("cmp_page_table" + captured,
                      "wide enough for the " + std::to_string(need) + " blocks of page_table",
                      std::to_string(have) + " places");
}

/// Tokens that each sequence holds, and will.
struct Lengths {
  std::vector<int64_t> before, after;
};

Lengths token_counts(const DecodeArguments& a) {
  const int64_t batch = a.call().q().size(0), num_new = a.call().q().size(1);
  if (!a.lengths.empty() && static_cast<int64_t>(a.lengths.size()) != batch)
    kDecodeCheck.fail("lengths", std::to_string(batch) + " numbers, one a sequence",
                      std::to_string(a.lengths.size()));
  const at::Tensor host = a.num_tokens.to(at::kLong).cpu().contiguous();
  Lengths out;
  for (int64_t i = 0; i < batch; ++i) {
    const auto place = static_cast<size_t>(i);
    const int64_t own = a.lengths.empty() ? num_new : a.lengths[place];
    if (own < 0 || own > num_new)
      kDecodeCheck.fail("lengths", "in 0..S = " + std::to_string(num_new), std::to_string(own));
    out.before.push_back(host.const_data_ptr<int64_t>()[i]);
    if (out.before.back() < 0)
      kDecodeCheck.fail("num_tokens of sequence " + std::to_string(i), "at least 0",
                        std::to_string(out.before.back()));
    out.after.push_back(out.before.back() + own);
  }
  return out;
}

/// Tokens that each sequence holds, after the checks of what the new ones need; empty where a CUDA
/// graph captures the call.
std::vector<int64_t> counted_tokens(const DecodeArguments& a) {
  if (a.call().q().is_cuda() && is_capturing()) {
    check_captured(a);
    return {};
  }
  const Lengths counts = token_counts(a);
  std::vector<int64_t> blocks;
  for (const int64_t tokens : counts.after)
    blocks.push_back(a.call().config.num_compressed(tokens));
  check_pages("page_table", a.page_table, a.k_pages.size(1), a.k_pages.size(0), counts.after);
  check_pages("cmp_page_table", a.cmp_page_table, a.k_cmp_pages.size(1), a.k_cmp_pages.size(0),
              blocks);
  return counts.before;
}

at::Tensor append_to(const DecodeArguments& a) {
  const AttentionCall& call = a.call();
  if (call.q().size(0) == 0)
    return at::empty({0, call.q().size(1), call.config.num_heads, call.config.v_head_dim},
                     call.q().options());
  const std::vector<int64_t> before = counted_tokens(a);
  const at::Tensor num_tokens = a.num_tokens.to(at::kLong);
  LayerCache caches = caches_over(a, num_tokens, before);
  NsaOptions options = whole_call_options(call.backend, call.strict, call.q());
  options.block_idx = call.block_idx;
  at::Tensor o = append_and_attend(caches, layer_inputs(call), a.lengths, options).o;
  if (!num_tokens.is_same(a.num_tokens)) a.num_tokens.copy_(num_tokens);
  return o.contiguous();
}

bool has_symbolic_sizes(const DecodeArguments& a) {
  for (const at::Tensor* x : {&a.call().q(), &a.k_pages, &a.k_cmp_pages, &a.k_window, &a.k_recent,
                              &a.page_table, &a.cmp_page_table})
    if (x->unsafeGetTensorImpl()->has_symbolic_sizes_strides()) return true;
  return false;
}

/// Sizes that a trace leaves open are checked when the traced call runs.
void check_call(const DecodeArguments& a) {
  check_attention(a.call());
  if (!has_symbolic_sizes(a)) check_memory(a);
}

void decode_kernel(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  const DecodeArguments a = read(op, *stack);
  const at::NoGradGuard no_graph;
  check_call(a);
  const at::Tensor o = append_to(a);
  torch::jit::drop(*stack, op.schema().arguments().size());
  torch::jit::push(*stack, o);
}

void decode_meta(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  const DecodeArguments a = read(op, *stack);
  check_call(a);
  auto sizes = a.call().q().sym_sizes().vec();
  sizes.back() = a.call().config.v_head_dim;
  torch::jit::drop(*stack, op.schema().arguments().size());
  torch::jit::push(*stack, at::empty_symint(sizes, a.call().q().options()));
}

/// The arguments that a call overwrites.
std::vector<at::Tensor> overwritten(const OperatorHandle& op, c10::ArrayRef<c10::IValue> values) {
  std::vector<at::Tensor> found;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto* alias = op.schema().arguments()[i].alias_info();
    if (alias != nullptr && alias->isWrite()) found.push_back(values[i].toTensor());
  }
  return found;
}

void decode_autograd(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  const auto values = torch::jit::last(*stack, op.schema().arguments().size());
  for (size_t i = 0; i < values.size(); ++i)
    TORCH_CHECK_NOT_IMPLEMENTED(
        !(at::GradMode::is_enabled() && values[i].isTensor() && values[i].toTensor().defined() &&
          values[i].toTensor().requires_grad()),
        "nsa::decode_: ", op.schema().arguments()[i].name(),
        " must not require a gradient, as a decode step has no backward pass; call it under "
        "torch.no_grad()");
  const std::vector<at::Tensor> caches = overwritten(op, values);
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    op.callBoxed(*stack);
  }
  // So that a backward pass that would read them is refused.
  for (const at::Tensor& x : caches)
    if (!x.is_inference()) x.unsafeGetTensorImpl()->bump_version();
}

/// Tokens in the type of the caches.
void decode_autocast(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  const DecodeArguments a = read(op, *stack);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(
      at::autocast::get_autocast_dispatch_key_from_device_type(a.k_pages.device().type()));
  const auto& arguments = op.schema().arguments();
  const size_t first = stack->size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i].name();
    c10::IValue& value = (*stack)[first + i];
    const bool of_tokens = name != "gates" && std::find(kCallTensors.begin(), kCallTensors.end(),
                                                        name) != kCallTensors.end();
    if (of_tokens && value.isTensor()) value = value.toTensor().to(a.k_pages.scalar_type());
  }
  op.callBoxed(*stack);
}

template <auto* kernel>
void implement_decode(torch::Library& m) {
  m.impl("decode_", torch::CppFunction::makeFromBoxedFunction<kernel>());
}

}  // namespace
}  // namespace nsa

TORCH_LIBRARY_FRAGMENT(nsa, m) { m.def(nsa::kDecodeSchema.c_str(), {at::Tag::pt2_compliant_tag}); }
TORCH_LIBRARY_IMPL(nsa, CPU, m) { nsa::implement_decode<nsa::decode_kernel>(m); }
TORCH_LIBRARY_IMPL(nsa, CUDA, m) { nsa::implement_decode<nsa::decode_kernel>(m); }
TORCH_LIBRARY_IMPL(nsa, Meta, m) { nsa::implement_decode<nsa::decode_meta>(m); }
TORCH_LIBRARY_IMPL(nsa, Autograd, m) { nsa::implement_decode<nsa::decode_autograd>(m); }
TORCH_LIBRARY_IMPL(nsa, AutocastCPU, m) { nsa::implement_decode<nsa::decode_autocast>(m); }
TORCH_LIBRARY_IMPL(nsa, AutocastCUDA, m) { nsa::implement_decode<nsa::decode_autocast>(m); }
