#pragma once
#include <pugixml.hpp>

namespace reports {

/// A third of the bytes of a drawing of gnuplot, and the same picture to a twentieth of a pixel: an
/// attribute stands where it changes, coordinates of lines count from the point before in tenths of
/// a pixel, colours are hexadecimal, groups without attributes are gone, the lines of a grid are
/// one path, words that look alike one group. Marks in `defs` stay.
void shorten_svg(pugi::xml_node root);

}  // namespace reports
