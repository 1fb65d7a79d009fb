#include "reports/model.h"

#include <gtest/gtest.h>

#include "reports/testing.h"

namespace reports {
namespace {

harness::Metric seconds(double value) {
  harness::Metric metric;
  metric.unit = "s";
  metric.value = value;
  return metric;
}

TEST(Model, WhatIsNoFigureReportsIt) {
  harness::Metric metric = seconds(5000);
  metric.withheld = "outputs differ";
  EXPECT_EQ(figure_text(metric), "**withheld**");
  metric = seconds(1);
  metric.value.reset();
  EXPECT_EQ(figure_text(metric), "**none**");
  EXPECT_EQ(interval_text(1, std::nullopt), "–");
}

TEST(Model, AStatusNeverStandsWithoutItsWord) {
  harness::Verdict verdict;
  for (const char* word : {"GO", "CONDITIONAL GO", "PARTIAL", "NO-GO (fault)", "<script>"}) {
    verdict.word = word;
    const std::string text = status_text(verdict);
    EXPECT_EQ(text.find("<script>"), std::string::npos);
    EXPECT_EQ(text.starts_with("✅"), verdict.word == "GO") << word;
  }
}

}  // namespace
}  // namespace reports
