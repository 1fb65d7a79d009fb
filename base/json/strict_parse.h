#pragma once
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

namespace base {

/// Why a text is no strict JSON. what() is the parser's text, the key that is given twice, or the
/// number of levels that are allowed: callers name the file and the remedy.
class StrictJsonError : public std::runtime_error {
 public:
  enum class Reason { kSyntax, kDuplicateKey, kTooDeep };
  StrictJsonError(Reason reason, const std::string& what)
      : std::runtime_error(what), reason_(reason) {}
  Reason reason() const { return reason_; }

 private:
  Reason reason_;
};

/// Parses one JSON value without comments. A key given twice in one object (nlohmann keeps the last
/// silently) and nesting deeper than `max_depth` (1: no container inside the outermost one) are
/// refused, so that no later recursion over the value can run out of stack. Throws StrictJsonError.
nlohmann::json parse_strict(std::string_view text, int max_depth);

/// The same in words: "key \"a\" is given twice in one object".
std::string text_of(const StrictJsonError& error);

}  // namespace base
