#include "harness/schema/read.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/text/nearest.h"
#include "harness/schema/parse/nearest.h"

namespace harness {
namespace {

using nlohmann::json;

std::string shown(const json& value) {
  return in_quotes(value.dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace

void Reader::take(const json& value, bool& out) {
  expect(value, value.is_boolean(), "true or false");
  out = value.get<bool>();
}

void Reader::take(const json& value, int64_t& out) {
  constexpr double kTwoTo63 = 9223372036854775808.0;
  const std::string_view want = "an integer";
  if (value.is_number_unsigned()) {
    constexpr auto kLargest = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    expect(value, value.get<uint64_t>() <= kLargest, "an integer below 2^63");
    out = value.get<int64_t>();
  } else if (value.is_number_integer()) {
    out = value.get<int64_t>();
  } else {
    expect(value, value.is_number_float(), want);
    const double number = value.get<double>();  // 5.0 is an integer to JSON Schema, and so to us
    expect(value, number == std::trunc(number) && number >= -kTwoTo63 && number < kTwoTo63, want);
    out = static_cast<int64_t>(number);
  }
}

void Reader::take(const json& value, double& out) {
  expect(value, value.is_number(), "a number");
  out = value.get<double>();
  expect(value, std::isfinite(out), "a finite number");
}

void Reader::take(const json& value, std::string& out) {
  expect(value, value.is_string(), "a string");
  out = value.get<std::string>();
}

void Reader::expect(const json& value, bool ok, std::string_view want) const {
  if (!ok) source_.fail(value, where() + " must be " + std::string(want) + ", got " + shown(value));
}

void Reader::reject_unknown_keys(const json& object, const std::vector<std::string>& known) const {
  for (const auto& [key, value] : object.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      source_.fail_at_key(
          object, key,
          "unknown key " + in_quotes(key) + " in " + where() + did_you_mean(key, known));
}

void Reader::missing(const json& object, const FieldDoc& doc) const {
  if (!doc.required || (mode_ == ReadMode::kPartial && !identifies(doc.name))) return;
  source_.fail(object, where() + " lacks the required key '" + std::string(doc.name) + "' (" +
                           std::string(doc.doc) + ")");
}

const json* Reader::enter(const json& object, const FieldDoc& doc) {
  auto at = object.find(doc.name);
  if (at == object.end() && !doc.before.empty()) at = object.find(doc.before);
  if (at == object.end()) {
    missing(object, doc);
    return nullptr;
  }
  path_.emplace_back(doc.name);
  return &*at;
}

std::string Reader::enum_text(const json& value, const std::vector<std::string>& names) const {
  expect(value, value.is_string(), "a string");
  const auto text = value.get<std::string>();
  if (std::find(names.begin(), names.end(), text) != names.end()) return text;
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  const std::string nearest = base::nearest_name(text, names);
  source_.fail(value, where() + " must be one of " + all + ", got " + in_quotes(text) +
                          (nearest.empty() ? "" : "; did you mean '" + nearest + "'?"));
}

std::string Reader::where() const {
  std::string text;
  for (const std::string& part : path_) {
    const bool index = part.starts_with('[');
    text += (text.empty() || index ? "" : ".") +
            (index ? part : in_quotes(part).substr(1, part.size()));
  }
  return text.empty() ? "the document" : text;
}

}  // namespace harness
