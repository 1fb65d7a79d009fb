#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>

namespace suites {

/// A line for each pass with its time, target, peer and dense attention; then the problems.
std::string target_bench_text(const nlohmann::json& report);

/// Two reports that cannot be compared; `rows` is what compare_text would have returned of them.
class NotComparable : public std::invalid_argument {
 public:
  NotComparable(const std::string& why, std::string rows_so_far, int64_t faults_so_far)
      : std::invalid_argument(why), rows(std::move(rows_so_far)), faults(faults_so_far) {}

  std::string rows;
  int64_t faults;
};

/// The cases of both runs. Of a case that is right and there once in each: the medians of every
/// pass, new / old, and the interval of that ratio from the two 99 % intervals of the medians
/// (their extremes: conservative); "faster" or "slower" only when 1 lies outside. Stages that
/// another code computed are named. Other cases have rows of their own and no ratio: LOST, NEW,
/// WRONG, DUPLICATE. `faults` counts the cases that are lost, wrong in `after`, or duplicate.
/// Throws std::invalid_argument on other files; NotComparable without a timed case in common, or
/// where a time is missing or not above 0.
std::string compare_text(const nlohmann::json& before, const nlohmann::json& after,
                         int64_t* faults = nullptr);

}  // namespace suites
