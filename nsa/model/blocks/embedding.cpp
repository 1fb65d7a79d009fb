#include "nsa/model/blocks/embedding.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace nsa {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Most elements of the one-hot matrix: 128 MiB of bf16.
constexpr int64_t kMostOneHot = int64_t{1} << 26;

/// Sums of the rows of `d_out` [T, dim] that belong to one token each: [vocab, dim] in `type`.
at::Tensor summed_rows(const at::Tensor& d_out, const at::Tensor& tokens, int64_t vocab,
                       at::ScalarType type) {
  if (!d_out.is_cuda())
    return at::embedding_dense_backward(d_out.to(type), tokens, vocab, /*padding_idx=*/-1,
                                        /*scale_grad_by_freq=*/false);
  if (d_out.size(0) * vocab > kMostOneHot) {
    // Sorted by token, each token's rows one behind the other.
    at::Tensor sums = at::zeros({vocab, d_out.size(1)}, d_out.options().dtype(type));
    return sums.index_put_({tokens}, d_out.to(type), /*accumulate=*/true);
  }
  const at::Tensor one_hot =
      tokens.unsqueeze(1).eq(at::arange(vocab, tokens.options())).to(d_out.scalar_type());
  return d_out.scalar_type() == type ? at::mm(one_hot.t(), d_out)
                                     : at::mm(one_hot.t(), d_out, type);
}

struct EmbedTokens : torch::autograd::Function<EmbedTokens> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& weight,
                            const at::Tensor& tokens, at::ScalarType type) {
    ctx->save_for_backward({tokens});
    ctx->saved_data["vocab"] = weight.size(0);
    ctx->saved_data["type"] = static_cast<int64_t>(weight.scalar_type());
    return at::embedding(weight, tokens).to(type);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "nsa::embed_tokens: double backward is not supported; detach the gradient first");
    const at::Tensor tokens = ctx->get_saved_variables()[0].flatten();
    const at::Tensor d_out = grads[0].reshape({tokens.numel(), grads[0].size(-1)});
    const auto type = static_cast<at::ScalarType>(ctx->saved_data["type"].toInt());
    return {summed_rows(d_out, tokens, ctx->saved_data["vocab"].toInt(), type), {}, {}};
  }
};

}  // namespace

at::Tensor embed_tokens(const at::Tensor& weight, const at::Tensor& tokens, at::ScalarType type) {
  return EmbedTokens::apply(weight, tokens, type);
}

}  // namespace nsa
