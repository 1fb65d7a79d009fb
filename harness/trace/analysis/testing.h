#pragma once
#include <string>

#include "harness/schema/error.h"
#include "harness/trace/analysis/profile.h"

namespace harness::trace {

/// The row of a profile that has this name. Throws Error when there is none.
inline const RangeRow& row(const Profile& profile, const std::string& name) {
  for (const RangeRow& each : profile.ranges)
    if (each.name == name) return each;
  throw Error("no row " + name);
}

}  // namespace harness::trace
