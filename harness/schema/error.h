#pragma once
#include <cstddef>
#include <stdexcept>
#include <string>

namespace harness {

/// Base of every error the instrument raises on purpose. The text names what was wrong, its value
/// and the remedy.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A usage or configuration error (exit code 2). what() is `FILE:LINE:COL: message`; the position
/// is left out where there is none (line 0), the file where there is none (empty).
class ConfigError : public Error {
 public:
  ConfigError(std::string file, size_t line, size_t column, std::string message);
  explicit ConfigError(std::string message) : ConfigError("", 0, 0, std::move(message)) {}

  const std::string& file() const { return file_; }
  size_t line() const { return line_; }      ///< 1-based; 0: unknown
  size_t column() const { return column_; }  ///< 1-based, in bytes; 0: unknown
  const std::string& message() const { return message_; }

 private:
  std::string file_;
  size_t line_ = 0;
  size_t column_ = 0;
  std::string message_;
};

}  // namespace harness
