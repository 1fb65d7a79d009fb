#pragma once
#include <string>
#include <vector>

#include "reports/model.h"

/// Tables of time per range that a profile leaves. A step names them PHASE.ranges; the column
/// "range" and the first column that ends with "ms" or "us" are drawn.
namespace reports {

struct RangeTable {
  const nlohmann::json& table;
  std::string id, title;
  size_t name = 0, time = 0;  ///< columns
  std::string unit;           ///< ms | us
};

/// Tables of time per range, ready to be drawn.
std::vector<RangeTable> range_tables(const Model& model);

}  // namespace reports
