#include "nsa/tensor_file/dtype.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

namespace nsa::tensor_file {
namespace {

// Values are copied byte for byte: the format is little-endian.
static_assert(std::endian::native == std::endian::little);

struct Row {
  Dtype dtype;
  std::string_view name;
  size_t bytes;
};
constexpr std::array<Row, 15> kTable = {{{Dtype::kF64, "F64", 8},
                                         {Dtype::kF32, "F32", 4},
                                         {Dtype::kF16, "F16", 2},
                                         {Dtype::kBF16, "BF16", 2},
                                         {Dtype::kF8E4M3, "F8_E4M3", 1},
                                         {Dtype::kF8E5M2, "F8_E5M2", 1},
                                         {Dtype::kI64, "I64", 8},
                                         {Dtype::kU64, "U64", 8},
                                         {Dtype::kI32, "I32", 4},
                                         {Dtype::kU32, "U32", 4},
                                         {Dtype::kI16, "I16", 2},
                                         {Dtype::kU16, "U16", 2},
                                         {Dtype::kI8, "I8", 1},
                                         {Dtype::kU8, "U8", 1},
                                         {Dtype::kBool, "BOOL", 1}}};

template <class T>
T load(const std::byte* element) {
  T value;
  std::memcpy(&value, element, sizeof value);
  return value;
}

template <class T>
void store(T value, std::byte* element) {
  std::memcpy(element, &value, sizeof value);
}

double decode_half(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  double magnitude = std::ldexp(mantissa, -24);  // subnormal
  if (exponent == 31)
    magnitude = mantissa ? std::numeric_limits<double>::quiet_NaN()
                         : std::numeric_limits<double>::infinity();
  else if (exponent > 0)
    magnitude = std::ldexp(1024 + mantissa, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

/// Four bits of exponent, three of mantissa: no infinity, NaN where all seven are set.
double decode_e4m3(uint8_t bits) {
  const int exponent = (bits >> 3) & 15, mantissa = bits & 7;
  double magnitude =
      exponent > 0 ? std::ldexp(8 + mantissa, exponent - 10) : std::ldexp(mantissa, -9);
  if ((bits & 0x7f) == 0x7f) magnitude = std::numeric_limits<double>::quiet_NaN();
  return bits & 0x80 ? -magnitude : magnitude;
}

/// Rounds to `mantissa_bits` after the leading one, exponents down to `min_exponent`, once.
double rounded(double value, int mantissa_bits, int min_exponent, double largest) {
  if (!std::isfinite(value) || value == 0) return value;
  const int exponent = std::max(std::ilogb(value), min_exponent);
  const double quantum = std::ldexp(1.0, exponent - mantissa_bits);
  // value / quantum is below 2^53 and exact; nearbyint rounds to nearest even.
  const double result = std::nearbyint(value / quantum) * quantum;
  return std::abs(result) > largest ? std::copysign(std::numeric_limits<double>::infinity(), value)
                                    : result;
}

uint16_t encode_half(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::abs(rounded(value, 10, -14, 65504.0));
  if (std::isnan(magnitude)) return sign | 0x7e00;
  if (std::isinf(magnitude)) return sign | 0x7c00;
  if (magnitude < std::ldexp(1.0, -14))
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::ldexp(magnitude, 24)));
  const int exponent = std::ilogb(magnitude);
  const auto mantissa = static_cast<uint16_t>(std::ldexp(magnitude, 10 - exponent) - 1024);
  return static_cast<uint16_t>(sign | ((exponent + 15) << 10) | mantissa);
}

uint8_t encode_e4m3(double value) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  const double magnitude = std::abs(rounded(value, 3, -6, 448.0));
  if (!std::isfinite(magnitude)) return sign | 0x7f;
  if (magnitude < std::ldexp(1.0, -6))
    return static_cast<uint8_t>(sign | static_cast<uint8_t>(std::ldexp(magnitude, 9)));
  const int exponent = std::ilogb(magnitude);
  const auto mantissa = static_cast<uint8_t>(std::ldexp(magnitude, 3 - exponent) - 8);
  return static_cast<uint8_t>(sign | ((exponent + 7) << 3) | mantissa);
}

uint8_t encode_e5m2(double value) {
  return static_cast<uint8_t>(encode_half(rounded(value, 2, -14, 57344.0)) >> 8);
}

uint16_t encode_bfloat16(double value) {
  if (std::isnan(value)) return std::signbit(value) ? 0xffc0 : 0x7fc0;
  const double largest = std::ldexp(255.0, 120);
  const auto nearest = static_cast<float>(rounded(value, 7, -126, largest));
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(nearest) >> 16);
}

template <class T>
void store_integer(double value, std::byte* element, Dtype dtype) {
  // Both bounds are powers of two (or 0) and exact as double; NaN fails the comparison.
  const double low = static_cast<double>(std::numeric_limits<T>::min());
  const double high = std::ldexp(1.0, std::numeric_limits<T>::digits);
  if (!(value >= low && value < high && std::trunc(value) == value))
    throw std::domain_error("value " + std::to_string(value) + " does not fit " +
                            std::string(name_of(dtype)));
  store(static_cast<T>(value), element);
}

}  // namespace

size_t size_bytes(Dtype dtype) { return kTable[static_cast<size_t>(dtype)].bytes; }

bool is_floating(Dtype dtype) { return dtype <= Dtype::kF8E5M2; }

std::string_view name_of(Dtype dtype) { return kTable[static_cast<size_t>(dtype)].name; }

std::optional<Dtype> dtype_named(std::string_view name) {
  for (const Row& row : kTable)
    if (row.name == name) return row.dtype;
  return std::nullopt;
}

double decode_element(Dtype dtype, const std::byte* element) {
  switch (dtype) {
    case Dtype::kF64:
      return load<double>(element);
    case Dtype::kF32:
      return load<float>(element);
    case Dtype::kF16:
      return decode_half(load<uint16_t>(element));
    case Dtype::kBF16:
      return std::bit_cast<float>(static_cast<uint32_t>(load<uint16_t>(element)) << 16);
    case Dtype::kF8E4M3:
      return decode_e4m3(load<uint8_t>(element));
    case Dtype::kF8E5M2:
      return decode_half(static_cast<uint16_t>(load<uint8_t>(element) << 8));
    case Dtype::kI64:
      return static_cast<double>(load<int64_t>(element));
    case Dtype::kU64:
      return static_cast<double>(load<uint64_t>(element));
    case Dtype::kI32:
      return load<int32_t>(element);
    case Dtype::kU32:
      return load<uint32_t>(element);
    case Dtype::kI16:
      return load<int16_t>(element);
    case Dtype::kU16:
      return load<uint16_t>(element);
    case Dtype::kI8:
      return load<int8_t>(element);
    case Dtype::kU8:
      return load<uint8_t>(element);
    case Dtype::kBool:
      return load<uint8_t>(element) != 0;
  }
  throw std::logic_error("unknown dtype");
}

void encode_element(Dtype dtype, double value, std::byte* element) {
  switch (dtype) {
    case Dtype::kF64:
      return store(value, element);
    case Dtype::kF32:
      return store(static_cast<float>(value), element);
    case Dtype::kF16:
      return store(encode_half(value), element);
    case Dtype::kBF16:
      return store(encode_bfloat16(value), element);
    case Dtype::kF8E4M3:
      return store(encode_e4m3(value), element);
    case Dtype::kF8E5M2:
      return store(encode_e5m2(value), element);
    case Dtype::kI64:
      return store_integer<int64_t>(value, element, dtype);
    case Dtype::kU64:
      return store_integer<uint64_t>(value, element, dtype);
    case Dtype::kI32:
      return store_integer<int32_t>(value, element, dtype);
    case Dtype::kU32:
      return store_integer<uint32_t>(value, element, dtype);
    case Dtype::kI16:
      return store_integer<int16_t>(value, element, dtype);
    case Dtype::kU16:
      return store_integer<uint16_t>(value, element, dtype);
    case Dtype::kI8:
      return store_integer<int8_t>(value, element, dtype);
    case Dtype::kU8:
      return store_integer<uint8_t>(value, element, dtype);
    case Dtype::kBool:
      if (!(value == 0 || value == 1)) throw std::domain_error("a BOOL must be 0 or 1");
      return store(static_cast<uint8_t>(value), element);
  }
}

}  // namespace nsa::tensor_file
