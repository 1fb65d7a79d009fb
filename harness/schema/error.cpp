#include "harness/schema/error.h"

namespace harness {
namespace {

std::string position_text(const std::string& file, size_t line, size_t column) {
  if (file.empty()) return "";
  if (line == 0) return file + ": ";
  return file + ":" + std::to_string(line) + ":" + std::to_string(column) + ": ";
}

}  // namespace

ConfigError::ConfigError(std::string file, size_t line, size_t column, std::string message)
    : Error(position_text(file, line, column) + message),
      file_(std::move(file)),
      line_(line),
      column_(column),
      message_(std::move(message)) {}

}  // namespace harness
