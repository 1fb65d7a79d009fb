#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "suites/conformance/checks/check.h"
#include "suites/conformance/checks/operator_checks.h"

namespace suites {

/// What the command line of nsa-tests says; set before tests are registered.
struct TestSettings {
  at::Device device = at::Device(at::kCPU);
  uint64_t seed = 20250216;
};
TestSettings& test_settings();

/// One point of a sampled test: configuration index and type. Test names have only indices, so
/// the list of tests depends on neither seed nor device.
struct Point {
  int64_t index = 0;
  at::ScalarType type = at::ScalarType::Double;
};
std::string point_name(const Point& point);
std::ostream& operator<<(std::ostream& out, const Point& point);

/// Points index 0..count-1 for each type.
std::vector<Point> points(int64_t count, const std::vector<at::ScalarType>& types);
const std::vector<at::ScalarType>& all_types();

/// The case of a point under the settings in force.
OperatorCase case_of(const Point& point, DataKind kind = DataKind::kNormal);

/// Expects at least one check and each of them to hold; a failure prints id, code, detail,
/// configuration and seed.
void expect_all(const Checks& checks, const OperatorCase& one);

}  // namespace suites
