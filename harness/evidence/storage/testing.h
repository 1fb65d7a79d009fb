#pragma once
#include <string>

#include "harness/evidence/error.h"

namespace harness {

/// What an action throws as Error, or "no error".
template <class Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace harness
