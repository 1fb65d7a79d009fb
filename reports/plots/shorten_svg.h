#pragma once
#include <pugixml.hpp>

namespace reports {

/// Half the bytes of a drawing of gnuplot, and the same picture to a twentieth of a pixel: what a
/// group says is said where it changes, coordinates of lines count from the point before in tenths
/// of a pixel, colours are hexadecimal, groups that say nothing are gone. Marks in `defs` stay.
void shorten_svg(pugi::xml_node root);

}  // namespace reports
