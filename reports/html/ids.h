#pragma once
#include <set>
#include <string>
#include <string_view>

namespace reports::html {

/// True for "C-speed.rate" and the like: one of P C M A D F S G, a dash, a name.
bool is_id(std::string_view text);

/// Which ids a section defines, by its heading: "Steps" those of steps, and so on; '\0' for others.
char defined_by(std::string_view heading);

/// As an id attribute and behind '#': letters, digits, - _ . stay, everything else is _HH.
std::string anchor_of(std::string_view text);

/// Anchors in use; the same wish twice gives two anchors.
class Anchors {
 public:
  std::string take(std::string_view wish);
  bool has(const std::string& anchor) const { return taken_.contains(anchor); }

 private:
  std::set<std::string> taken_;
};

}  // namespace reports::html
