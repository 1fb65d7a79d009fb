#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace nsa::tensor_file {

/// Parses JSON that comes from a stranger: a key given twice in one object and nesting deeper than
/// `max_depth` (1: no container inside the outermost one) are refused, so that no later recursion
/// over the value can run out of stack. Throws std::invalid_argument beginning with `what`.
nlohmann::json parse_strict(const std::string& text, const std::string& what, int max_depth);

/// The value as text, cut so that it fits a line of an error.
std::string excerpt(const nlohmann::json& value);
std::string excerpt(const std::string& text);

}  // namespace nsa::tensor_file
