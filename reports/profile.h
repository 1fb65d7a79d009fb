#pragma once
#include <string>
#include <vector>

#include "reports/model.h"

/// Which tables of a run are profiles. A step names them by id: PHASE.ranges (a column "range", and
/// a first column that ends with "ms" or "us" and is drawn), PHASE.hotspots, PHASE.kernels,
/// PHASE.copies, PHASE.idle, PHASE.path and PHASE.dilation.
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
