#pragma once
#include <string>
#include <string_view>

namespace reports {

/// An SVG as it may stand in a page: known elements and attributes only, no script, no style, no
/// reference that leaves it, ids with `name` in front so that several can share a page, the text
/// colour of the page where the script sets the colour of text, and `title` as its description for
/// screen readers. Empty when `drawn` is no SVG.
std::string clean_svg(std::string_view drawn, const std::string& name, const std::string& title);

/// The colour that stands for "the text colour of the page" in a script.
inline constexpr std::string_view kTextColour = "#010203";

}  // namespace reports
