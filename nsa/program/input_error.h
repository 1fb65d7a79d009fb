#pragma once
#include <stdexcept>

namespace nsa {

/// A fault of what the caller gave (a file, an option, a corpus). The text names it, its value and
/// the remedy; programs print it and exit with 2.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace nsa
