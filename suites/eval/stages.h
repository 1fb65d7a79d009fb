#pragma once
#include "suites/eval/evaluation.h"

namespace suites::eval {

/// Stage values, each taken from the file where it holds them, else computed by the operators of
/// nsa/ from the stage before. Packed documents are computed one by one. All write what they made
/// to `results`.
class Stages {
 public:
  explicit Stages(Evaluation& run) : run_(run) {}

  struct Compressed {
    at::Tensor k, v;  ///< [B, N_c, Hkv, .] or packed; v undefined when only k_cmp is given
  };

  at::Tensor q_rot();
  Compressed compressed();
  at::Tensor computed_scores();     ///< never the file's own
  at::Tensor computed_block_idx();  ///< from the scores of the file, else from computed ones
  at::Tensor ranges();              ///< of the file, else of its block_idx as a set, else computed
  /// Of the rows of the file's block_idx in their order, as the converters read them, else of a
  /// computed one; counts what they ignore.
  at::Tensor converted_ranges();

  /// The block_idx of the file, else the one its scores give; undefined when it has neither.
  at::Tensor given_block_idx();
  at::Tensor given_ranges();

  /// The same for values that are at hand.
  at::Tensor rotate(const at::Tensor& x);
  at::Tensor p_cmp(const at::Tensor& q_rot, const at::Tensor& k_cmp);
  /// o_sel and lse_sel; q and k rotated.
  void sel_attn(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                const at::Tensor& ranges);
  /// o_win and lse_win; q and k rotated.
  void win_attn(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

 private:
  at::Tensor set_of(const at::Tensor& block_idx);
  at::Tensor ranges_of(const at::Tensor& ids);
  void count_ignored(const at::Tensor& block_idx);
  at::Tensor scores_of_p_cmp();
  at::Tensor given_scores();
  at::Tensor select(const at::Tensor& scores);
  template <class F>
  void attend(const std::string& branch, const F& f);

  Evaluation& run_;
};

/// Weights of phi from the file, as cfg.phi needs; `side` is k or v, D its head dim.
nsa::PhiWeights phi_weights(Evaluation& run, const std::string& side, int64_t D);

}  // namespace suites::eval
