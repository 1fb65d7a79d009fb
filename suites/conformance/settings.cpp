#include "suites/conformance/settings.h"

#include <gtest/gtest.h>

namespace suites {

TestSettings& test_settings() {
  static TestSettings settings;
  return settings;
}

std::string point_name(const Point& point) {
  return (point.index < 10 ? "c0" : "c") + std::to_string(point.index) + "_" +
         dtype_name(point.type);
}

std::ostream& operator<<(std::ostream& out, const Point& point) { return out << point_name(point); }

std::vector<Point> points(int64_t count, const std::vector<at::ScalarType>& types) {
  std::vector<Point> all;
  for (at::ScalarType type : types)
    for (int64_t index = 0; index < count; ++index) all.push_back({index, type});
  return all;
}

const std::vector<at::ScalarType>& all_types() {
  static const std::vector<at::ScalarType> types = {at::kDouble, at::kFloat, at::kBFloat16,
                                                    at::kHalf};
  return types;
}

OperatorCase case_of(const Point& point, DataKind kind) {
  const TestSettings& settings = test_settings();
  CaseConfig config = sample_config(settings.seed, point.index);
  // fp64 has tolerances of its own, so that narrow values are judged there.
  if (point.type == at::kDouble && point.index % 4 == 3) config.v_head_dim = 3 + point.index % 3;
  return {.config = config,
          .kind = kind,
          .type = point.type,
          .device = settings.device,
          .seed = settings.seed + static_cast<uint64_t>(point.index),
          .layout = layout_of(point.index),
          .name = point_name(point) + "_" + std::string(data_kind_name(kind))};
}

void expect_all(const Checks& checks, const OperatorCase& one) {
  EXPECT_FALSE(checks.empty()) << "no check ran";
  for (const Check& check : checks)
    EXPECT_TRUE(check.ok) << check.id << " " << check.code << ": " << check.detail
                          << "\n  configuration " << to_string(one.config) << ", seed " << one.seed
                          << ", device " << one.device;
}

}  // namespace suites
