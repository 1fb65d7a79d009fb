#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace nsa::tensor_file {

/// base::parse_strict for untrusted JSON. Throws std::invalid_argument that names
/// `what` and is cut to fit a line.
nlohmann::json parse_strict(const std::string& text, const std::string& what, int max_depth);

/// The value as text, cut so that it fits a line of an error.
std::string excerpt(const nlohmann::json& value);
std::string excerpt(const std::string& text);

}  // namespace nsa::tensor_file
