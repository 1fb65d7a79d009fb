#include "harness/runbook/mutate.h"

#include <array>
#include <vector>

namespace harness {
namespace {

using nlohmann::json;

size_t below(size_t bound, Random& random) { return bound == 0 ? 0 : random() % bound; }

void collect(json& value, std::vector<json*>& all) {
  all.push_back(&value);
  if (value.is_structured())
    for (json& child : value) collect(child, all);
}

json hostile_value(Random& random) {
  static const std::vector<json> kValues = {nullptr,
                                            true,
                                            false,
                                            0,
                                            -1,
                                            1,
                                            2.5,
                                            1e300,
                                            5e-324,
                                            INT64_MAX,
                                            INT64_MIN,
                                            UINT64_MAX,
                                            "",
                                            "first",
                                            "second",
                                            "|`<script>\n\x1b[31m",
                                            "../../etc/passwd",
                                            "\xc3\xbc",
                                            ">=",
                                            "nsa-train",
                                            "nsa-tests:*",
                                            "builtin:environment",
                                            std::string(5000, 'a'),
                                            json::array(),
                                            json::object(),
                                            json::array({json::array()}),
                                            json{{"id", "x"}},
                                            json{{"baseline", "a.b_ms"}, {"factor", -1}}};
  return kValues[below(kValues.size(), random)];
}

}  // namespace

void change_value(json& document, Random& random) {
  std::vector<json*> all;
  collect(document, all);
  json& place = *all[below(all.size(), random)];
  const json copy = *all[below(all.size(), random)];
  const size_t kind = below(5, random);
  if (kind == 0 && place.is_object() && !place.empty()) {
    place.erase(
        std::next(place.begin(), static_cast<std::ptrdiff_t>(below(place.size(), random))).key());
  } else if (kind == 1 && place.is_array() && !place.empty()) {
    place.push_back(place[below(place.size(), random)]);
  } else if (kind == 2 && place.is_object()) {
    static const std::array kKeys = {"id",   "needs",    "extends", "args", "run",
                                     "unit", "criteria", "zz",      ""};
    place[kKeys[below(kKeys.size(), random)]] = hostile_value(random);
  } else if (kind == 3) {
    place = copy;
  } else {
    place = hostile_value(random);
  }
}

void change_bytes(std::string& text, Random& random) {
  static const std::string kBytes = "{}[]\",:/*\\ \n019.eE+-tfnu\xff\x00\x1b\xc3";
  const size_t at = below(text.size(), random);
  const char byte = kBytes[below(kBytes.size(), random)];
  switch (below(5, random)) {
    case 0:
      if (!text.empty()) text[at] = byte;
      break;
    case 1:
      text.erase(at, 1 + below(20, random));
      break;
    case 2:
      text.insert(at, 1 + below(3, random), byte);
      break;
    case 3:
      text.insert(at, text.substr(below(text.size(), random), below(80, random)));
      break;
    default:
      if (below(10, random) == 0) text.resize(at);
  }
}

}  // namespace harness
