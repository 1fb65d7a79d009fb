#include "suites/bench/coverage/boxes.h"

#include <algorithm>
#include <map>
#include <utility>

namespace suites {
namespace {

/// Joins what differs in `axis` only.
std::vector<Box> join_along(const std::vector<Box>& boxes, size_t axis) {
  std::map<std::pair<std::vector<std::vector<size_t>>, std::vector<std::string>>,
           std::vector<size_t>>
      joined;
  for (const Box& box : boxes) {
    std::vector<std::vector<size_t>> others = box.sets;
    others[axis].clear();
    std::vector<size_t>& set = joined[{others, box.value}];
    set.insert(set.end(), box.sets[axis].begin(), box.sets[axis].end());
  }
  std::vector<Box> result;
  for (auto& [key, set] : joined) {
    std::ranges::sort(set);
    Box box{key.first, key.second};
    box.sets[axis] = set;
    result.push_back(std::move(box));
  }
  return result;
}

}  // namespace

std::vector<Box> join_boxes(std::vector<Box> boxes) {
  const size_t axes = boxes.empty() ? 0 : boxes.front().sets.size();
  for (size_t before = boxes.size() + 1; boxes.size() < before;) {
    before = boxes.size();
    for (size_t axis = axes; axis-- > 0;) boxes = join_along(boxes, axis);
  }
  std::ranges::sort(boxes, {}, [](const Box& box) {
    std::vector<size_t> first;
    for (const std::vector<size_t>& set : box.sets) first.push_back(set.front());
    return first;
  });
  return boxes;
}

std::string set_text(const Axis& axis, const std::vector<size_t>& set, bool ordered) {
  if (set.size() == axis.values.size()) return "any";
  if (ordered && set.size() > 2 && set.back() - set.front() + 1 == set.size())
    return axis.values[set.front()] + " to " + axis.values[set.back()];
  std::string text;
  for (const size_t index : set) text += (text.empty() ? "" : ", ") + axis.values[index];
  return text;
}

}  // namespace suites
