// Schemas of the registered operators of the whole call.
#include <torch/library.h>

#include <string>
#include <vector>

#include "nsa/api/operator_schema.h"

namespace nsa {
namespace {

const std::string kOwnTensors =
    "Tensor? k_sel=None, Tensor? v_sel=None, Tensor? k_win=None, Tensor? v_win=None, ";
const std::string kCompressedTensors = "Tensor? k_cmp=None, Tensor? v_cmp=None, ";
const std::string kGradientsOfBranches =
    "Tensor d_gates, Tensor d_k_cmp, Tensor d_v_cmp, Tensor d_k_sel, Tensor d_v_sel, "
    "Tensor d_k_win, Tensor d_v_win)";

struct OperatorText {
  std::string name;
  std::string tensors;            ///< of the forward operator
  int gradients = 0;              ///< that the backward operator returns
  std::string gradients_of_qkv;   ///< the first of them
  std::string own_settings = {};  ///< of this operator alone
};

/// The tensors of a backward operator: none has a default behind one that has none.
std::string required(std::string tensors) {
  for (size_t at = tensors.find("=None"); at != std::string::npos; at = tensors.find("=None"))
    tensors.erase(at, 5);
  return tensors;
}

/// The forward operator can leave results for the backward operator. They are its last argument, as
/// code that torch.compile writes leaves an empty list out.
void define(torch::Library& m, const OperatorText& text) {
  const std::vector<at::Tag> tags = {at::Tag::pt2_compliant_tag};
  const std::string settings = kSettings + text.own_settings;
  m.def((text.name + "_fwd(" + text.tensors + "Tensor? block_idx=None, " + settings +
         ", bool keep=False) -> (Tensor o, Tensor block_idx_out, Tensor[] kept)")
            .c_str(),
        tags);
  m.def((text.name + "_bwd(Tensor d_o, " + required(text.tensors) + "Tensor block_idx, bool[" +
         std::to_string(text.gradients) + "] wanted, " + settings + ", Tensor[]? kept=None) -> (" +
         text.gradients_of_qkv + kGradientsOfBranches)
            .c_str(),
        tags);
}

}  // namespace
}  // namespace nsa

TORCH_LIBRARY_FRAGMENT(nsa, m) {
  const std::string of_three = "Tensor d_q, Tensor d_k, Tensor d_v, ";
  nsa::define(m, {"attention",
                  "Tensor q, Tensor k, Tensor v, Tensor gates, " + nsa::kCompressedTensors +
                      nsa::kOwnTensors,
                  10, of_three});
  nsa::define(
      m, {"attention_varlen",
          "Tensor q, Tensor k, Tensor v, Tensor gates, Tensor cu_seqlens, " + nsa::kOwnTensors, 10,
          of_three, ", int? max_seqlen=None"});
  nsa::define(m, {"attention_qkvpacked",
                  "Tensor qkv, Tensor gates, int num_heads, int num_kv_heads, "
                  "int? v_head_dim=None, " +
                      nsa::kCompressedTensors + nsa::kOwnTensors,
                  8, "Tensor d_qkv, "});
}
