#include "nsa/tensor_file/dtype.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace nsa::tensor_file {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

uint16_t bits16(Dtype dtype, double value) {
  std::array<std::byte, 2> element;
  encode_element(dtype, value, element.data());
  uint16_t bits;
  std::memcpy(&bits, element.data(), 2);
  return bits;
}

double round_trip(Dtype dtype, double value) {
  std::array<std::byte, 8> element;
  encode_element(dtype, value, element.data());
  return decode_element(dtype, element.data());
}

TEST(Dtype, NamesGoBothWays) {
  for (const char* name : {"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "I64", "U64", "I32",
                           "U32", "I16", "U16", "I8", "U8", "BOOL"})
    EXPECT_EQ(name_of(dtype_named(name).value()), name);
  for (const char* name : {"F8", "F8_E8M0", "F4", "f64", "", "C64"})
    EXPECT_FALSE(dtype_named(name).has_value()) << name;
}

TEST(Dtype, HalfBits) {
  EXPECT_EQ(bits16(Dtype::kF16, 1.0), 0x3c00);
  EXPECT_EQ(bits16(Dtype::kF16, -2.0), 0xc000);
  EXPECT_EQ(bits16(Dtype::kF16, 65504.0), 0x7bff);
  EXPECT_EQ(bits16(Dtype::kF16, 65519.9), 0x7bff);
  EXPECT_EQ(bits16(Dtype::kF16, 65520.0), 0x7c00);  // halfway to 65536, rounds to infinity
  EXPECT_EQ(bits16(Dtype::kF16, std::ldexp(1.0, -24)), 0x0001);
  EXPECT_EQ(bits16(Dtype::kF16, std::ldexp(1.0, -25)), 0x0000);  // halfway to 0, even
  EXPECT_EQ(bits16(Dtype::kF16, std::ldexp(1.5, -24)), 0x0002);  // halfway between 1 and 2
  EXPECT_EQ(bits16(Dtype::kF16, -0.0), 0x8000);
  // 1 + 2^-11 is halfway and goes to even; a bit more goes up. Through float it would go down.
  EXPECT_EQ(bits16(Dtype::kF16, 1.0 + std::ldexp(1.0, -11)), 0x3c00);
  EXPECT_EQ(bits16(Dtype::kF16, 1.0 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40)), 0x3c01);
}

TEST(Dtype, BFloat16Bits) {
  EXPECT_EQ(bits16(Dtype::kBF16, 1.0), 0x3f80);
  EXPECT_EQ(bits16(Dtype::kBF16, -kInf), 0xff80);
  EXPECT_EQ(bits16(Dtype::kBF16, 1.0 + std::ldexp(1.0, -8)), 0x3f80);
  EXPECT_EQ(bits16(Dtype::kBF16, 1.0 + std::ldexp(1.0, -8) + std::ldexp(1.0, -40)), 0x3f81);
  EXPECT_EQ(bits16(Dtype::kBF16, std::ldexp(1.0, -133)), 0x0001);
  EXPECT_EQ(bits16(Dtype::kBF16, 1e39), 0x7f80);
}

TEST(Dtype, EveryHalfAndBFloat16RoundTrips) {
  for (const Dtype dtype : {Dtype::kF16, Dtype::kBF16})
    for (uint32_t i = 0; i < 65536; ++i) {
      const auto bits = static_cast<uint16_t>(i);
      std::array<std::byte, 2> element;
      std::memcpy(element.data(), &bits, 2);
      const double value = decode_element(dtype, element.data());
      if (std::isnan(value))
        EXPECT_TRUE(std::isnan(round_trip(dtype, value)));
      else
        EXPECT_EQ(bits16(dtype, value), bits) << name_of(dtype) << " " << i;
    }
}

uint8_t bits8(Dtype dtype, double value) {
  std::byte element;
  encode_element(dtype, value, &element);
  return static_cast<uint8_t>(element);
}

TEST(Dtype, EightBitFloats) {
  EXPECT_EQ(bits8(Dtype::kF8E4M3, 1.0), 0x38);
  EXPECT_EQ(bits8(Dtype::kF8E4M3, -448.0), 0xfe);
  EXPECT_EQ(bits8(Dtype::kF8E4M3, std::ldexp(1.0, -9)), 0x01);   // smallest subnormal
  EXPECT_EQ(bits8(Dtype::kF8E4M3, std::ldexp(1.0, -10)), 0x00);  // halfway to 0, even
  EXPECT_EQ(bits8(Dtype::kF8E4M3, 1.0625), 0x38);                // halfway, even
  EXPECT_EQ(bits8(Dtype::kF8E4M3, 1.0625 + std::ldexp(1.0, -40)), 0x39);
  EXPECT_EQ(bits8(Dtype::kF8E4M3, 500.0), 0x7f);  // there is no infinity
  EXPECT_EQ(bits8(Dtype::kF8E5M2, 1.0), 0x3c);
  EXPECT_EQ(bits8(Dtype::kF8E5M2, 57344.0), 0x7b);
  EXPECT_EQ(bits8(Dtype::kF8E5M2, 61440.0), 0x7c);  // halfway to 65536, rounds to infinity
  EXPECT_EQ(bits8(Dtype::kF8E5M2, -kInf), 0xfc);
}

TEST(Dtype, EveryEightBitFloatRoundTrips) {
  for (const Dtype dtype : {Dtype::kF8E4M3, Dtype::kF8E5M2})
    for (int i = 0; i < 256; ++i) {
      const auto element = static_cast<std::byte>(i);
      const double value = decode_element(dtype, &element);
      if (std::isnan(value))
        EXPECT_TRUE(std::isnan(round_trip(dtype, value)));
      else
        EXPECT_EQ(bits8(dtype, value), i) << name_of(dtype);
    }
}

TEST(Dtype, OtherTypesRoundTrip) {
  EXPECT_EQ(round_trip(Dtype::kF64, 0.1), 0.1);
  EXPECT_EQ(round_trip(Dtype::kF32, 0.1), static_cast<double>(0.1f));
  EXPECT_EQ(round_trip(Dtype::kI64, -3), -3);
  EXPECT_EQ(round_trip(Dtype::kI32, -2147483648.0), -2147483648.0);
  EXPECT_EQ(round_trip(Dtype::kU64, std::ldexp(1.0, 63)), std::ldexp(1.0, 63));
  EXPECT_EQ(round_trip(Dtype::kU32, 4294967295.0), 4294967295.0);
  EXPECT_EQ(round_trip(Dtype::kI16, -32768), -32768);
  EXPECT_EQ(round_trip(Dtype::kU16, 65535), 65535);
  EXPECT_EQ(round_trip(Dtype::kI8, -128), -128);
  EXPECT_EQ(round_trip(Dtype::kU8, 255), 255);
  EXPECT_EQ(round_trip(Dtype::kBool, 1), 1);
  for (const Dtype dtype : {Dtype::kF64, Dtype::kF32, Dtype::kF16, Dtype::kBF16}) {
    EXPECT_EQ(round_trip(dtype, kInf), kInf);
    EXPECT_TRUE(std::isnan(round_trip(dtype, std::nan(""))));
  }
}

TEST(Dtype, IntegersRefuseWhatTheyCannotHold) {
  std::array<std::byte, 8> e;
  EXPECT_THROW(encode_element(Dtype::kI32, 2147483648.0, e.data()), std::domain_error);
  EXPECT_THROW(encode_element(Dtype::kI32, 0.5, e.data()), std::domain_error);
  EXPECT_THROW(encode_element(Dtype::kI64, std::ldexp(1.0, 63), e.data()), std::domain_error);
  EXPECT_THROW(encode_element(Dtype::kU8, -1, e.data()), std::domain_error);
  EXPECT_THROW(encode_element(Dtype::kI64, std::nan(""), e.data()), std::domain_error);
  EXPECT_THROW(encode_element(Dtype::kBool, 2, e.data()), std::domain_error);
}

}  // namespace
}  // namespace nsa::tensor_file
