#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "harness/schema/error.h"

namespace harness {

/// what() of the ConfigError `run` throws; "no error" when it throws none.
template <class F>
std::string config_error_of(F run) {
  try {
    run();
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace harness
