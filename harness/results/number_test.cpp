#include "harness/results/number.h"

#include <gtest/gtest.h>

#include <limits>

#include "harness/results/plain_figure.h"

namespace harness {
namespace {

TEST(FormatNumber, FourSignificantDigitsWithoutTrailingZeros) {
  const std::pair<double, const char*> table[] = {{0, "0"},
                                                  {-0.0, "0"},
                                                  {1, "1"},
                                                  {2.5, "2.5"},
                                                  {1.6231, "1.623"},
                                                  {1.62351, "1.624"},
                                                  {-1.6231, "-1.623"},
                                                  {9.9996, "10"},
                                                  {99.996, "100"},
                                                  {0.012345, "0.01235"},
                                                  {0.0001, "0.0001"},
                                                  {0.00012346, "0.0001235"},
                                                  {1.5e-7, "1.5e-07"},
                                                  {1234.56, "1235"},
                                                  {9999.7, "10,000"},
                                                  {12345.67, "12,346"},
                                                  {1e15, "1e+15"},
                                                  {0.1 + 0.2, "0.3"}};
  for (const auto& [value, text] : table) EXPECT_EQ(format_number(value), text) << value;
}

/// What was rounded away shows; what is exact has no zeros added.
TEST(FormatRounded, KeepsTheZerosItWasRoundedTo) {
  const std::pair<double, const char*> table[] = {
      {1.0039, "1.00"},   {0.99962, "1.00"},       {1.6995, "1.70"}, {2.8984, "2.90"},  {2, "2"},
      {0.97, "0.97"},     {99.97, "100"},          {7384, "7380"},   {12345, "12,300"}, {0, "0"},
      {-1.0039, "-1.00"}, {.00010004, "0.000100"}, {1e-9, "1e-09"}};
  for (const auto& [value, text] : table) EXPECT_EQ(format_rounded(value), text) << value;
}

TEST(PlainFigure, EveryNumberOfAnIntervalHasItsScale) {
  EXPECT_EQ(plain_figure(978600, "tok_s", false, 948100, 1009600), "979k tok/s [948k, 1.01M]");
  EXPECT_EQ(plain_figure(7384, "tok_s", false, 5690.4, 10102), "7380 tok/s [5690, 10.1k]");
  EXPECT_EQ(plain_figure(1049000, "tok_s", false, 995000, 1070400), "1.05M tok/s [995k, 1.07M]");
  EXPECT_EQ(plain_figure(25.31, "ms", false, 24.94, 25.8), "25.3 ms [24.9, 25.8]");
  EXPECT_EQ(plain_figure(.9962, "ratio", true, .9581, 1.0039), "0.996x [0.958, 1.00]");
}

TEST(FormatNumber, WholeNumbersInFull) {
  EXPECT_EQ(format_number(1234), "1234");
  EXPECT_EQ(format_number(12345), "12,345");
  EXPECT_EQ(format_number(357123), "357,123");
  EXPECT_EQ(format_number(-1234567), "-1,234,567");
}

TEST(FormatNumber, NotFiniteIsAWord) {
  EXPECT_EQ(format_number(std::numeric_limits<double>::quiet_NaN()), "not a number");
  EXPECT_EQ(format_number(std::numeric_limits<double>::infinity()), "infinite");
  EXPECT_EQ(format_number(-std::numeric_limits<double>::infinity()), "-infinite");
}

TEST(FormatValue, Units) {
  EXPECT_EQ(format_value(4.35, "ms"), "4.35 ms");
  EXPECT_EQ(format_value(4.35, "us"), "4.35 \u00b5s");
  EXPECT_EQ(format_value(357123, "tok_s"), "357,123 tok/s");
  EXPECT_EQ(format_value(1.5, "ratio"), "1.5");
  EXPECT_EQ(format_value(50, "count"), "50");
  EXPECT_EQ(format_value(99.5, "pct"), "99.5 %");
  EXPECT_EQ(format_value(1, "bool"), "yes");
  EXPECT_EQ(format_value(0, "bool"), "no");
  EXPECT_EQ(format_value(0.5, "bool"), "0.5");
  EXPECT_EQ(format_value(3, "furlong"), "3 furlong");
}

TEST(FormatApart, RoundingNeverHidesADifference) {
  EXPECT_EQ(format_apart(1.62, 1.5, "ratio"), (std::pair<std::string, std::string>("1.62", "1.5")));
  EXPECT_EQ(format_apart(.99998, .99999, "ratio"),
            (std::pair<std::string, std::string>("0.99998", "0.99999")));
  EXPECT_EQ(format_apart(1.00001, 1, "ms").first, "1.00001 ms");
  EXPECT_EQ(format_apart(2, 2, "ms").first, "2 ms");
  EXPECT_EQ(format_apart(std::numeric_limits<double>::quiet_NaN(), 2, "").first, "not a number");
}

TEST(Counted, OneThingHasNoPlural) {
  EXPECT_EQ(counted(0, "step"), "0 steps");
  EXPECT_EQ(counted(1, "step"), "1 step");
  EXPECT_EQ(counted(12345, "more table"), "12,345 more tables");
}

TEST(FormatDuration, Steps) {
  EXPECT_EQ(format_duration(0.4231), "0.423 s");
  EXPECT_EQ(format_duration(12.34), "12.3 s");
  EXPECT_EQ(format_duration(59.97), "1 min 00 s");
  EXPECT_EQ(format_duration(185), "3 min 05 s");
  EXPECT_EQ(format_duration(7620), "2 h 07 min");
  EXPECT_EQ(format_duration(47.9 * 3600), "47 h 54 min");
  EXPECT_EQ(format_duration(100 * 3600), "4 d 04 h");
  EXPECT_EQ(format_duration(-1), "-1 s");
  EXPECT_EQ(format_value(26464.9, "s"), "26,465 s (7 h 21 min)");
  EXPECT_EQ(format_value(119, "s"), "119 s");
}

TEST(FormatBytes, Steps) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(12600), "12.3 KiB");
  EXPECT_EQ(format_bytes(int64_t{5} << 30), "5 GiB");
}

TEST(RoundSignificant, TwelveDigits) {
  EXPECT_EQ(round_significant(1.0000000000001, 12), 1);
  EXPECT_EQ(round_significant(1.23456789012345, 12), 1.23456789012);
  EXPECT_EQ(round_significant(0, 12), 0);
}

}  // namespace
}  // namespace harness
