#pragma once
#include <CLI/CLI.hpp>
#include <string>

#include "base/text/plain_text.h"

namespace nsa {

/// CLI11's message for a command line that it refuses, for CLI::App::failure_message.
inline std::string plain_failure(const CLI::App* app, const CLI::Error& error) {
  return CLI::FailureMessage::simple(
      app, {error.get_name(), base::plain_text(error.what()), error.get_exit_code()});
}

}  // namespace nsa
