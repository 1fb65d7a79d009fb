#include "nsa/tensor_file/strict_parse.h"

#include <set>
#include <stdexcept>
#include <vector>

namespace nsa::tensor_file {

using nlohmann::json;

json parse_strict(const std::string& text, const std::string& what, int max_depth) {
  // nlohmann keeps the last of two equal keys silently.
  std::vector<std::set<std::string>> open;
  const auto callback = [&](int depth, json::parse_event_t event, json& parsed) {
    using Event = json::parse_event_t;
    if ((event == Event::object_start || event == Event::array_start) && depth >= max_depth)
      throw std::invalid_argument(what + " must nest at most " + std::to_string(max_depth) +
                                  " levels deep, got more");
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (event == Event::key && !open.back().insert(parsed.get<std::string>()).second)
      throw std::invalid_argument("'" + excerpt(parsed.get<std::string>()) +
                                  "': duplicate key in the " + what);
    return true;
  };
  try {
    return json::parse(text, callback);
  } catch (const json::exception& error) {
    throw std::invalid_argument(what + " is not JSON: " + excerpt(std::string(error.what())));
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
