#pragma once
#include <cstdint>
#include <string>

/// The inner loops of the CPU kernels, compiled once for each instruction set and chosen at run
/// time. All operands are fp32; rows are contiguous in their last axis.
namespace nsa::cpu {

/// Keys of a panel: the unit in which queries meet keys. A set of keys of one panel is a word of
/// 64 bits, bit i for key i.
inline constexpr int64_t kPanelKeys = 64;
inline constexpr uint64_t kAllKeys = ~uint64_t{0};
/// Row lengths that vectors of every instruction set divide.
inline constexpr int64_t kRowMultiple = 16;

/// c [m, n] (+)= a [m, k] times b [k, n]. Element (i, p) of a is a[i * a_row + p * a_column].
/// Long sums are sums of short ones, in an order that does not depend on m and n.
struct MatrixProduct {
  int64_t m, n, k;  ///< n a multiple of kRowMultiple
  const float* a;
  int64_t a_row, a_column;
  const float* b;
  int64_t b_row;
  float* c;
  int64_t c_row;
  bool accumulate;
};

/// Which rows a matrix [count * group, 64] of logits holds: row i belongs to head i % group of the
/// tile's query number queries[i / group], which attends keys[i / group] of the panel. State of
/// that row is found at queries[i / group] * group + i % group.
struct PanelRows {
  int64_t count;  ///< queries
  int64_t group;  ///< query heads of a KV head
  const int32_t* queries;
  const uint64_t* keys;
};

/// One step of the running softmax: logits become weights exp(scale * logit - peak), 0 where a row
/// does not attend a key; the rows' peak and sum are carried on.
struct RunningSoftmax {
  PanelRows rows;
  float scale;
  float* logits;  ///< [count * group, 64], in place
  float* peak;    ///< [rows of the tile] largest logit so far, starts at -inf
  float* sum;     ///< [rows of the tile] of weights so far, starts at 0
  float* decay;   ///< [count * group] out: by what older sums are multiplied
};

/// out[row] = out[row] * decay[i] + part[i] for the rows of `rows`.
struct RowUpdate {
  PanelRows rows;
  const float* decay;  ///< null: 1
  const float* part;   ///< [count * group, width]
  float* out;          ///< [rows of the tile, width]
  int64_t width;       ///< a multiple of kRowMultiple
};

/// What is left of a row's softmax: a probability is exp(scale * logit - peak) * inverse. Two
/// numbers are more exact than lse, which rounds to the size of the logits.
struct RowSoftmax {
  float peak, inverse;
};

/// Probabilities p in place of the logits, 0 where a row does not attend a key; adds to delta the
/// sum over keys of p * d.
struct Probabilities {
  PanelRows rows;
  float scale;
  float* logits;              ///< [count * group, 64]
  const float* d;             ///< [count * group, 64] gradients of the probabilities
  const RowSoftmax* softmax;  ///< [rows of the tile]
  float* delta;               ///< [rows of the tile]
};

/// The gradient of a softmax: scale * p * (d - delta) in place of d, 0 where a row does not attend
/// a key.
struct LogitGradients {
  PanelRows rows;
  float scale;
  const float* p;      ///< [count * group, 64]
  float* d;            ///< [count * group, 64]
  const float* delta;  ///< [rows of the tile]
};

/// Softmax of a whole row: weights exp(scale * logit - peak) in place of the first `count` logits,
/// zeros up to `width`.
struct WholeSoftmax {
  float* logits;
  int64_t count, width;  ///< width a multiple of kPanelKeys
  float scale;
};
struct SoftmaxSums {
  float peak, sum;
};

/// Scores of compressed blocks for one query and KV head (paper, Eqs. 9 and 10).
struct StrideScores {
  const float* weights;  ///< [group, row] exp(logit - peak)
  int64_t row, group;
  const float* inverse;  ///< [group] 1 / sum of the head
  int64_t blocks;        ///< visible compressed blocks
  int64_t reach;         ///< strides a compressed block covers, l / d
  float* probs;          ///< [reach - 1 + width]; the first reach - 1 are zero, out: P of Eq. 10
  float* strides;        ///< [width] out: sum of P over the compressed blocks that cover a stride
  int64_t width;         ///< strides, at least blocks + reach - 1
};

/// One instruction set.
struct KernelTable {
  void (*multiply)(const MatrixProduct&);
  void (*running_softmax)(const RunningSoftmax&);
  void (*update_rows)(const RowUpdate&);
  void (*probabilities)(const Probabilities&);
  void (*logit_gradients)(const LogitGradients&);
  SoftmaxSums (*whole_softmax)(const WholeSoftmax&);
  void (*stride_scores)(const StrideScores&);
};

enum class InstructionSet { kBaseline, kAvx2, kAvx512 };
/// "baseline", "avx2", "avx512".
std::string to_string(InstructionSet set);
/// Whether this processor and this build have it.
bool is_available(InstructionSet set);
/// The widest that is available, unless a test limits it.
InstructionSet instruction_set();
const KernelTable& kernel_table();

/// Limits the choice of calls that start while it lives; for tests of each instruction set.
class InstructionSetLimit {
 public:
  explicit InstructionSetLimit(InstructionSet widest);
  ~InstructionSetLimit();
  InstructionSetLimit(const InstructionSetLimit&) = delete;
  InstructionSetLimit& operator=(const InstructionSetLimit&) = delete;

 private:
  InstructionSet before_;
};

}  // namespace nsa::cpu
