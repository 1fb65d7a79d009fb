#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

/// Seeded inputs. All are made on the CPU in fp64 and rounded once to the asked type, so that every
/// device and type of a case sees the same numbers.
namespace suites {

enum class DataKind {
  kNormal,        ///< standard normal
  kSmallInteger,  ///< integers in -2..2: sums and products are exact in every type
  kTies,          ///< one token repeated along axis 1: equal keys have equal logits
  kHugeLogits,    ///< normal times 100: logits of about 1e4 for head dims of 64
  kTinyLogits,    ///< normal times 2^-10: logits of about 2^-20
};

/// Name as written in test names and case ids.
std::string_view data_kind_name(DataKind kind);
const std::vector<DataKind>& all_data_kinds();

/// A CPU generator that starts at `seed`.
at::Generator make_generator(uint64_t seed);

/// `sizes` = [B, S, H, D] (or any), filled by kind.
at::Tensor make_data(at::IntArrayRef sizes, DataKind kind, at::Generator& generator,
                     at::ScalarType type);

/// How a tensor [B,S,H,D] lies in memory.
enum class Layout {
  kContiguous,
  kStrided,   ///< token and head dimensions swapped in memory, a gap behind every row
  kSliced,    ///< every second token of a longer tensor, not from its start
  kExpanded,  ///< all heads are the first one, stride 0: the only layout that changes values
};
const std::vector<Layout>& all_layouts();
/// Name as written in test names and case ids.
std::string_view layout_name(Layout layout);

/// x in a layout, what lies between its values filled with 7. Differentiable.
at::Tensor lay_out(const at::Tensor& x, Layout layout);

/// Copy of x [B,S,...] whose tokens behind `t` (t+1..) are `value`, on the device of x.
at::Tensor poison_after(const at::Tensor& x, int64_t t, double value);

/// Copy of x [B,S,...] whose tokens behind `t` are fresh normal values.
at::Tensor randomize_after(const at::Tensor& x, int64_t t, at::Generator& generator);

}  // namespace suites
