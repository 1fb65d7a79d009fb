#include "suites/reference_cases/agreement.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

namespace suites {
namespace {

namespace ref = nsa::reference;

ref::Shape place_of(size_t flat, const ref::Shape& shape) {
  ref::Shape place(shape.size());
  for (size_t axis = shape.size(); axis-- > 0; flat /= static_cast<size_t>(shape[axis]))
    place[axis] = static_cast<int64_t>(flat % static_cast<size_t>(shape[axis]));
  return place;
}

double largest_finite(std::span<const double> values) {
  double largest = 0;
  for (const double value : values)
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  return largest;
}

bool agree(double actual, double expected, double tolerance) {
  if (std::isnan(actual) && std::isnan(expected)) return true;
  if (std::isinf(actual) || std::isinf(expected)) return actual == expected;
  return std::abs(actual - expected) <= tolerance;
}

/// `agree_at(i)` for every flat index; shapes first.
template <class T, class AgreeAt>
std::string report(const ref::Tensor<T>& actual, const ref::Tensor<T>& expected,
                   const AgreeAt& agree_at) {
  if (actual.shape() != expected.shape())
    return "shape " + ref::to_string(actual.shape()) + ", expected " +
           ref::to_string(expected.shape());
  size_t differing = 0, first = 0;
  for (size_t i = 0; i < expected.values().size(); ++i)
    if (!agree_at(i) && differing++ == 0) first = i;
  if (differing == 0) return "";
  std::ostringstream text;
  text << std::setprecision(17) << actual.values()[first] << " at "
       << ref::to_string(place_of(first, expected.shape())) << ", expected "
       << expected.values()[first] << "; " << differing << " of " << expected.values().size()
       << " differ";
  return text.str();
}

template <class T>
std::string first_difference_exact(const ref::Tensor<T>& actual, const ref::Tensor<T>& expected) {
  return report(actual, expected,
                [&](size_t i) { return actual.values()[i] == expected.values()[i]; });
}

}  // namespace

Agreement agreement_for(const std::string& name) {
  Agreement agreement;
  // A logarithm's absolute error is its sum's relative one; the scores of a row add up to at least
  // one per head, which is the scale of their differences.
  if (name.starts_with("lse_") || name == "sel_margin") agreement.scale_floor = 1;
  if (name.starts_with("d_")) agreement.scale_of_tensor = 1e-3;
  return agreement;
}

std::string first_difference(const ref::Tensor<double>& actual, const ref::Tensor<double>& expected,
                             const Agreement& agreement) {
  const std::span<const double> values = expected.values();
  const double floor =
      std::max(agreement.scale_floor, agreement.scale_of_tensor * largest_finite(values));
  const size_t width = expected.defined() ? static_cast<size_t>(expected.shape().back()) : 1;
  return report(actual, expected, [&](size_t i) {
    const auto row = values.subspan(i / width * width, width);
    const double tolerance = agreement.relative * std::max(floor, largest_finite(row));
    return agree(actual.values()[i], values[i], tolerance);
  });
}

std::string first_difference(const ref::Tensor<int32_t>& actual,
                             const ref::Tensor<int32_t>& expected) {
  return first_difference_exact(actual, expected);
}

std::string first_difference(const ref::Tensor<int64_t>& actual,
                             const ref::Tensor<int64_t>& expected) {
  return first_difference_exact(actual, expected);
}

}  // namespace suites
