#include "base/json/strict_parse.h"

#include <set>
#include <vector>

namespace base {

using nlohmann::json;

json parse_strict(std::string_view text, int max_depth) {
  using Reason = StrictJsonError::Reason;
  std::vector<std::set<std::string>> open;
  const auto callback = [&](int depth, json::parse_event_t event, json& parsed) {
    using Event = json::parse_event_t;
    if ((event == Event::object_start || event == Event::array_start) && depth >= max_depth)
      throw StrictJsonError(Reason::kTooDeep, std::to_string(max_depth));
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (event == Event::key && !open.back().insert(parsed.get<std::string>()).second)
      throw StrictJsonError(Reason::kDuplicateKey, parsed.get<std::string>());
    return true;
  };
  try {
    return json::parse(text, callback);
  } catch (const json::exception& error) {
    throw StrictJsonError(Reason::kSyntax, error.what());
  }
}

std::string text_of(const StrictJsonError& error) {
  using Reason = StrictJsonError::Reason;
  if (error.reason() == Reason::kTooDeep)
    return std::string("nests deeper than ") + error.what() + " levels";
  if (error.reason() == Reason::kDuplicateKey)
    return "key " + json(error.what()).dump() + " is given twice in one object";
  return std::string("not valid JSON: ") + error.what();
}

}  // namespace base
