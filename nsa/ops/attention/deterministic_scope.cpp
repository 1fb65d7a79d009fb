#include "nsa/ops/attention/deterministic_scope.h"

#include <ATen/Context.h>

#include <mutex>

namespace nsa {
namespace {

/// Of all scopes of the process.
struct Shared {
  std::mutex mutex;
  int alive = 0;
  bool on = false, warn_only = false;  ///< as the program had set it
};

Shared& shared() {
  static Shared state;
  return state;
}

}  // namespace

DeterministicScope::DeterministicScope() {
  Shared& state = shared();
  const std::lock_guard lock(state.mutex);
  if (state.alive++ > 0) return;
  state.on = at::globalContext().deterministicAlgorithms();
  state.warn_only = at::globalContext().deterministicAlgorithmsWarnOnly();
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
}

DeterministicScope::~DeterministicScope() {
  Shared& state = shared();
  const std::lock_guard lock(state.mutex);
  if (--state.alive == 0) at::globalContext().setDeterministicAlgorithms(state.on, state.warn_only);
}

}  // namespace nsa
