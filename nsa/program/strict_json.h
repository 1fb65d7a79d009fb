#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "nsa/program/input_error.h"

/// Strict reading of small JSON files: an unknown key, a key given twice, a missing key or a value
/// of the wrong type is an error that names the file, line, column and the nearest known key.
namespace nsa {

/// Parses `text`; duplicate keys, comments, more than 64 levels and anything behind the value are
/// errors. `where` names it in errors.
nlohmann::json parse_strict_json(std::string_view text, const std::string& where);

/// Reads one JSON object key by key and remembers which keys were asked for.
class StrictObject {
 public:
  /// `text` is what `object` was parsed from ("" if unknown: errors then carry no line and column).
  StrictObject(const nlohmann::json& object, std::string where, std::string_view text = {});

  /// The value of a key that must be there.
  template <class T>
  T required(const std::string& key) {
    const nlohmann::json* value = find(key);
    if (value == nullptr) fail(object_, "key \"" + key + "\" is missing");
    return convert<T>(key, *value);
  }

  /// The value of a key, or `fallback` where the key is absent.
  template <class T>
  T optional(const std::string& key, T fallback) {
    const nlohmann::json* value = find(key);
    return value == nullptr ? fallback : convert<T>(key, *value);
  }

  /// A nested object that must be there.
  StrictObject child(const std::string& key);

  /// Declares a key that is allowed and ignored here.
  void ignore(const std::string& key) { find(key); }

  /// Throws InputError for the first key that was never asked for, naming the nearest one.
  void finish() const;

  /// Throws InputError `WHERE:LINE:COLUMN: message`.
  [[noreturn]] void fail(const nlohmann::json& at, const std::string& message) const;

 private:
  const nlohmann::json* find(const std::string& key);
  std::string position(size_t offset) const;

  template <class T>
  T convert(const std::string& key, const nlohmann::json& value) const {
    bool fits = false;
    std::string want;
    if constexpr (std::is_same_v<T, bool>) {
      fits = value.is_boolean(), want = "true or false";
    } else if constexpr (std::is_integral_v<T>) {
      fits = value.is_number_integer(), want = "an integer";
    } else if constexpr (std::is_floating_point_v<T>) {
      fits = value.is_number(), want = "a number";
    } else if constexpr (std::is_same_v<T, std::string>) {
      fits = value.is_string(), want = "a string";
    } else {
      fits = value.is_array(), want = "a list";
    }
    if (!fits)
      fail(value,
           "\"" + key + "\" must be " + want + ", got " + value.dump(-1, ' ', true, kReplace));
    return value.get<T>();
  }

  static constexpr auto kReplace = nlohmann::json::error_handler_t::replace;
  const nlohmann::json& object_;
  std::string where_;
  std::string_view text_;
  std::vector<std::string> known_;
};

}  // namespace nsa
