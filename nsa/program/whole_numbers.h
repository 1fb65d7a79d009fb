#pragma once
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <string>

namespace nsa {

/// CLI11 reads a number beyond 64 bits as the largest one, and -1 where no number is negative as
/// 2^64 - 1. Both are refused by every option of `app` that takes a whole number.
inline void refuse_wrapped_numbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const bool is_unsigned = option->get_type_name().rfind("UINT", 0) == 0;
    if (!is_unsigned && option->get_type_name().rfind("INT", 0) != 0) continue;
    const auto problem = [is_unsigned](std::string& text) -> std::string {
      errno = 0;
      if (is_unsigned)
        std::strtoull(text.c_str(), nullptr, 0);
      else
        std::strtoll(text.c_str(), nullptr, 0);
      if (errno != ERANGE && !(is_unsigned && text.find('-') != std::string::npos)) return "";
      return "must be a whole number from " +
             std::string(is_unsigned ? "0 to 2^64 - 1" : "-2^63 to 2^63 - 1") + ", got " + text;
    };
    option->check(CLI::Validator(problem, ""));
  }
}

}  // namespace nsa
