#include "harness/schema/parse/source.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/json/depth.h"
#include "base/text/position.h"
#include "harness/schema/error.h"
#include "harness/schema/parse/nearest.h"
#include "harness/schema/parse/scan.h"

namespace harness {
namespace {

using nlohmann::json;

constexpr size_t kLongestReason = 200;

/// Accepts everything and keeps the first error with its offset, which the DOM parser does not give
/// for numbers out of range.
struct ErrorFinder : nlohmann::json_sax<json> {
  std::optional<std::pair<size_t, std::string>> error;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t position, const std::string&, const json::exception& e) override {
    error = {position == 0 ? 0 : position - 1, e.what()};
    return false;
  }
};

/// "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..." without
/// the position, which the error has already.
std::string reason_of(const std::string& text) {
  if (const size_t at = text.find("syntax error"); at != std::string::npos) return text.substr(at);
  if (const size_t at = text.find("] "); at != std::string::npos) return text.substr(at + 2);
  return text;
}

}  // namespace

json Source::parse(std::string_view text, const std::string& file) {
  const size_t base = all_.size();
  all_ += text;
  all_ += '\n';
  texts_.push_back({file, base});

  if (text.starts_with("\xef\xbb\xbf"))
    fail_at(base, "starts with a byte order mark; save it as UTF-8 without one");
  // To the parser it is the end of the text: what stands behind it would be seen by people only.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos)
    fail_at(base + nul, "holds a NUL byte; want JSON text");
  const JsonScan scan = scan_json(text, base::kMaxDepth);
  if (scan.too_deep)
    fail_at(base + *scan.too_deep,
            "nests deeper than " + std::to_string(base::kMaxDepth) + " levels");
  ErrorFinder finder;
  json::sax_parse(text, &finder, json::input_format_t::json, /*strict=*/true,
                  /*ignore_comments=*/true);
  if (finder.error) {
    const auto& [offset, what] = *finder.error;
    const bool blank = text.find_first_not_of(" \t\r\n") == std::string_view::npos;
    fail_at(base + std::min(offset, text.size()),
            blank ? "is empty; want a JSON object"
                  : "not valid JSON: " + printable(reason_of(what), kLongestReason));
  }
  std::set<std::pair<size_t, std::string>> seen;
  for (const KeyToken& key : scan.keys)
    if (!seen.emplace(key.object, key.name).second)
      fail_at(base + key.offset,
              "duplicate key " + in_quotes(key.name) + "; remove one of the two");

  // Blanks before the text give its values offsets of their own among all texts.
  return json::parse(std::string(base, ' ').append(text), nullptr, /*allow_exceptions=*/true,
                     /*ignore_comments=*/true);
}

void Source::fail(const json& value, const std::string& message) const {
  fail_at(value.start_pos(), message);
}

void Source::fail_at_key(const json& object, std::string_view key,
                         const std::string& message) const {
  const size_t start = object.start_pos();
  if (start < all_.size()) {
    const JsonScan scan = scan_json(std::string_view(all_).substr(start), base::kMaxDepth);
    for (const KeyToken& token : scan.keys)
      if (token.object == 0 && token.name == key) fail_at(start + token.offset, message);
  }
  fail(object, message);
}

void Source::fail_at(size_t offset, const std::string& message) const {
  if (offset >= all_.size()) throw ConfigError(texts_.empty() ? "" : texts_[0].file, 0, 0, message);
  const auto behind = std::find_if(texts_.begin(), texts_.end(),
                                   [&](const Text& text) { return text.base > offset; });
  const Text& text = *std::prev(behind);
  const auto [line, column] =
      base::position_of(std::string_view(all_).substr(text.base), offset - text.base);
  throw ConfigError(text.file, line, column, message);
}

}  // namespace harness
