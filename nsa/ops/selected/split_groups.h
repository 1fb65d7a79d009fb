#pragma once
#include <string>

#include "nsa/ops/selected/row_problem.h"

namespace nsa {

/// Groups above the kernels' largest as several of equal size, each with a copy of the KV head; as
/// they are on a CPU. Gradients of copies are added in a fixed order.
SelAttnArgs with_split_groups(const SelAttnArgs& args);

/// The same on views, of which only sizes, type and device may be looked at.
SelAttnArgs split_sizes(const SelAttnArgs& args);

/// For the record: ", each group in 2", or nothing where none was split.
std::string split_detail(const SelAttnArgs& given, const SelAttnArgs& split);

}  // namespace nsa
