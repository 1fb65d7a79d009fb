#pragma once
#include <string>
#include <vector>

#include "reports/model.h"

/// Which tables of a run are profiles. A step names them by id: PHASE.ranges (of which the column
/// "range" and the first column that ends with "ms" or "us" are drawn), PHASE.kernels,
/// PHASE.copies, PHASE.roofline, PHASE.idle, PHASE.dilation, PHASE.hotspots, and PHASE.paths where
/// it has a column "kernels".
namespace reports {

bool is_profile_table(const nlohmann::json& table);

struct RangeTable {
  const nlohmann::json& table;
  std::string id, title;
  size_t name = 0, time = 0;  ///< columns
  std::string unit;           ///< ms | us
};

/// Tables of time per range, ready to be drawn.
std::vector<RangeTable> range_tables(const Model& model);

}  // namespace reports
