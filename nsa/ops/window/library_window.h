#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <utility>

#include "nsa/backend/backend.h"

namespace nsa {

/// Arguments of one call, checked.
struct WindowArgs {
  at::Tensor q, k, v;  ///< [B, S, Hq, dk], [B, N, Hkv, dk], [B, N, Hkv, dv]
  int64_t window;
  int64_t first_position;
  double scale;
};

/// Empty where the library's `backend` computes this call rightly, else why not. Flash has a
/// window; cuDNN is causal only, and is used without a gradient (whether its backward pass is
/// deterministic is not documented).
std::string library_window_obstacle(const WindowArgs& args, BranchBackend backend);

/// {out, lse} by the library's `backend`, where nothing stands against it. Differentiable once; a
/// gradient of lse, which the library does not take, goes through the plain backward pass and is
/// recorded as win_attn.backward.
std::pair<at::Tensor, at::Tensor> library_window(const WindowArgs& args, BranchBackend backend);

}  // namespace nsa
