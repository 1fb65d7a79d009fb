#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

namespace nsa {

/// A registered operator, looked up once: `static const auto op =
/// find_operator<Signature>("nsa::x")`.
template <typename Signature>
c10::TypedOperatorHandle<Signature> find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace nsa
