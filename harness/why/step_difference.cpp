#include "harness/why/step_difference.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "harness/schema/error.h"

namespace harness {
namespace {

void require_whole(const trace::StepParts& x, const std::string& which) {
  if (x.steps < 1) throw Error("the profile of " + which + " has no step");
  if (x.dropped > 0)
    throw Error("the profile of " + which + " lost " + std::to_string(x.dropped) +
                " records, so its times do not add up: run that phase again");
}

class Joined {
 public:
  void take(const trace::StepParts& x, bool is_a) {
    const double steps = static_cast<double>(x.steps);
    for (const trace::StepPart& part : x.parts) {
      const double ms = static_cast<double>(part.time) / 1e6 / steps,
                   count = static_cast<double>(part.count) / steps;
      add(parts_[{part.name, part.range}], part.name, part.range, ms, count, is_a);
      const std::string range = part.range.empty() ? kIdle : part.range;
      add(ranges_[{range, ""}], range, "", ms, count, is_a);
    }
  }
  std::vector<PartChange> parts() const { return by_change(parts_); }
  std::vector<PartChange> ranges() const { return by_change(ranges_); }

 private:
  using Changes = std::map<std::pair<std::string, std::string>, PartChange>;

  static void add(PartChange& change, const std::string& name, const std::string& range, double ms,
                  double count, bool is_a) {
    change.name = name, change.range = range;
    (is_a ? change.a_ms : change.b_ms) += ms;
    (is_a ? change.a_count : change.b_count) += count;
  }
  static std::vector<PartChange> by_change(const Changes& changes) {
    std::vector<PartChange> all;
    for (const auto& [key, change] : changes) all.push_back(change);
    std::stable_sort(all.begin(), all.end(), [](const PartChange& x, const PartChange& y) {
      return std::abs(x.delta_ms()) > std::abs(y.delta_ms());
    });
    return all;
  }

  Changes parts_, ranges_;
};

double step_ms(const trace::StepParts& x) {
  return static_cast<double>(x.wall) / 1e6 / static_cast<double>(x.steps);
}

}  // namespace

StepDifference step_difference(const trace::StepParts& a, const trace::StepParts& b) {
  require_whole(a, "A");
  require_whole(b, "B");
  if (a.step != b.step)
    throw Error("a step of A is a range '" + a.step + "', one of B '" + b.step + "'");
  Joined joined;
  joined.take(a, true);
  joined.take(b, false);
  return {
      .a_ms = step_ms(a), .b_ms = step_ms(b), .parts = joined.parts(), .ranges = joined.ranges()};
}

}  // namespace harness
