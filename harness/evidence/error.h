#pragma once
#include <string>

#include "harness/schema/error.h"

namespace harness {

/// Evidence that cannot be read or does not add up (exit code 6). what() is `FILE: message`; the
/// file is relative to the run folder.
class EvidenceError : public Error {
 public:
  EvidenceError(std::string file, const std::string& message)
      : Error(file + ": " + message), file_(std::move(file)), message_(message) {}
  const std::string& file() const { return file_; }
  const std::string& message() const { return message_; }

 private:
  std::string file_;
  std::string message_;
};

}  // namespace harness
