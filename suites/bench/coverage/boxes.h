#pragma once
#include <string>
#include <vector>

/// A function on a grid, written down as few boxes in which it is constant.
namespace suites {

/// One axis of a grid.
struct Axis {
  std::string name;
  std::vector<std::string> values;
};

/// The product of sets of indices, one set an axis, each ascending.
struct Box {
  std::vector<std::vector<size_t>> sets;
  std::vector<std::string> value;
};

/// Joins boxes that have the same value and differ in one axis only, the last axis first, until
/// none do. Sorted by their first points.
std::vector<Box> join_boxes(std::vector<Box> boxes);

/// A set of values of an axis: "any", "1 to 16" where three or more follow each other and
/// `ordered`, else "64/64, 128/128".
std::string set_text(const Axis& axis, const std::vector<size_t>& set, bool ordered);

}  // namespace suites
