#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace suites {

/// A line a pass: ours, target, peer, dense attention beside it; then what was wrong.
std::string target_bench_text(const nlohmann::json& report);

/// The passes both runs timed: medians, new / old, and the interval of that ratio from the two 99 %
/// intervals of the medians (their extremes: conservative). "faster" or "slower" only when 1 lies
/// outside. Stages that another code computed are named. Throws std::invalid_argument on other
/// files or without a common case.
std::string compare_text(const nlohmann::json& before, const nlohmann::json& after);

}  // namespace suites
