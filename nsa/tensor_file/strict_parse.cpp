#include "nsa/tensor_file/strict_parse.h"

#include <stdexcept>

#include "base/json/strict_parse.h"

namespace nsa::tensor_file {

using nlohmann::json;

json parse_strict(const std::string& text, const std::string& what, int max_depth) {
  using Reason = base::StrictJsonError::Reason;
  try {
    return base::parse_strict(text, max_depth);
  } catch (const base::StrictJsonError& error) {
    if (error.reason() == Reason::kTooDeep)
      throw std::invalid_argument(what + " must nest at most " + std::to_string(max_depth) +
                                  " levels deep, got more");
    const std::string detail = excerpt(std::string(error.what()));
    if (error.reason() == Reason::kDuplicateKey)
      throw std::invalid_argument("'" + detail + "': duplicate key in the " + what);
    throw std::invalid_argument(what + " is not JSON: " + detail);
  }
}

std::string excerpt(const std::string& text) {
  constexpr size_t kMost = 160;
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

std::string excerpt(const json& value) {
  return excerpt(value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace));
}

}  // namespace nsa::tensor_file
