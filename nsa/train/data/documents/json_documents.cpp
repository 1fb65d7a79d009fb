#include "nsa/train/data/documents/json_documents.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "nsa/program/input_error.h"

namespace nsa::train {
namespace {

constexpr const char* kBlank = " \t\r\n";

/// The library counts lines within what it was given; its place is left out of the reason.
std::string reason_of(const nlohmann::json::exception& error) {
  const std::string what = error.what();
  const size_t place = what.find(": ");
  return place == std::string::npos ? what : what.substr(place + 2);
}

/// "FILE:LINE: not valid JSON at column 9: REASON"; `text` begins with line `first_line`.
[[noreturn]] void fail_json(const std::string& name, std::string_view text, int64_t first_line,
                            const nlohmann::json::parse_error& error) {
  const auto end = text.begin() + static_cast<int64_t>(std::min(
                                      text.size(), error.byte > 0 ? error.byte - 1 : size_t{0}));
  const int64_t line = first_line + std::count(text.begin(), end, '\n');
  const auto begin = std::find(std::make_reverse_iterator(end), text.rend(), '\n').base();
  throw InputError(name + ":" + std::to_string(line) + ": not valid JSON at column " +
                   std::to_string(end - begin + 1) + ": " + reason_of(error));
}

nlohmann::json parse(const std::string& name, std::string_view text, int64_t first_line) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    fail_json(name, text, first_line, error);
  }
}

void take_record(const nlohmann::json& record, const std::string& where, const std::string& field,
                 const TakeDocument& take, DocumentCounts& counts) {
  if (!record.is_object())
    throw InputError(where + ": must be an object, got " + record.type_name());
  const auto text = record.find(field);
  if (text == record.end())
    throw InputError(where + ": field \"" + field + "\" is missing; name another with --field");
  if (text->is_null()) {
    ++counts.nulls;
    return;
  }
  if (!text->is_string())
    throw InputError(where + ": field \"" + field + "\" must be a string, got " +
                     text->type_name());
  take(text->get_ref<const std::string&>());
  ++counts.taken;
}

/// A first line that is JSON by itself begins a file of one object a line.
bool begins_with_an_object_a_line(std::string_view text) {
  const size_t end = text.find('\n');
  return end != std::string_view::npos && nlohmann::json::accept(text.substr(0, end));
}

void take_lines(std::string_view text, const std::string& name, const std::string& field,
                const TakeDocument& take, DocumentCounts& counts) {
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(kBlank) == std::string_view::npos) continue;
    take_record(parse(name, line, number), name + ":" + std::to_string(number), field, take,
                counts);
  }
}

}  // namespace

DocumentCounts read_json_lines(TextReader& text, const std::string& name, const std::string& field,
                               const TakeDocument& take) {
  std::string line;
  DocumentCounts counts;
  while (text.next_line(line)) {
    if (line.find_first_not_of(kBlank) == std::string::npos) continue;
    const std::string where = name + ":" + std::to_string(text.line_number());
    take_record(parse(name, line, text.line_number()), where, field, take, counts);
  }
  return counts;
}

DocumentCounts read_json(TextReader& reader, const std::string& name, const std::string& field,
                         const TakeDocument& take) {
  const std::string text = reader.rest();
  DocumentCounts counts;
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string::npos) return counts;
  if (text[begin] != '[' && begins_with_an_object_a_line(std::string_view(text).substr(begin))) {
    take_lines(text, name, field, take, counts);
    return counts;
  }
  const nlohmann::json whole = parse(name, text, 1);
  if (!whole.is_array()) {
    take_record(whole, name, field, take, counts);
    return counts;
  }
  for (size_t i = 0; i < whole.size(); ++i)
    take_record(whole[i], name + ": entry " + std::to_string(i + 1) + " of the array", field, take,
                counts);
  return counts;
}

}  // namespace nsa::train
