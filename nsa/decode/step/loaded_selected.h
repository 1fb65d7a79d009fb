#pragma once
#include <utility>

#include "nsa/backend/backend.h"
#include "nsa/decode/cache/kv_rows.h"

namespace nsa {

/// The selected branch of a step over its loaded pairs, whose padding stands last in every row:
/// q [A, 1, Hq, dk] rotated -> {out [A, 1, Hq, dv] type of q, lse [A, 1, Hq] accumulation type}.
/// `gather`, the default, is attend_loaded and does not wait for the device. `varlen` is one call
/// of the library's flash attention where that applies. The others, and gradients of `varlen`, run
/// nsa::sel_attn on the loaded pairs. What ran goes to current_record().
std::pair<at::Tensor, at::Tensor> attend_loaded_selected(const at::Tensor& q, const LoadedKv& kv,
                                                         const SelAttnOptions& options,
                                                         double scale);

}  // namespace nsa
