#pragma once
#include "harness/schema/traits.h"

/// A struct with one member of every supported type, for the tests of this folder.
namespace harness {

enum class Colour { kRed, kGreen };
template <>
struct EnumNames<Colour> {
  static constexpr auto names = std::to_array<std::pair<Colour, std::string_view>>(
      {{Colour::kRed, "red"}, {Colour::kGreen, "green"}});
};

struct Inner {
  std::string id;
  double weight = 0.5;
  template <class V>
  static void describe(V& v) {
    v({.name = "id", .doc = "name", .required = true}, &Inner::id);
    v({.name = "weight", .doc = "share | part", .unit = "pct"}, &Inner::weight);
  }
};

struct Example {
  std::string title;
  bool flag = false;
  int64_t count = 7;
  Colour colour = Colour::kRed;
  std::optional<double> bound = {};
  std::vector<Inner> parts = {};
  std::map<std::string, std::string> labels = {};
  nlohmann::json any = nlohmann::json::object();
  template <class V>
  static void describe(V& v) {
    v({.name = "title", .doc = "shown first", .required = true}, &Example::title);
    v({.name = "flag", .doc = "a switch"}, &Example::flag);
    v({.name = "count", .doc = "how many", .unit = "count"}, &Example::count);
    v({.name = "colour", .doc = "red or green"}, &Example::colour);
    v({.name = "bound", .doc = "null when there is none"}, &Example::bound);
    v({.name = "parts", .doc = "what it holds"}, &Example::parts);
    v({.name = "labels", .doc = "free names"}, &Example::labels);
    v({.name = "any", .doc = "free form"}, &Example::any);
  }
};

}  // namespace harness
