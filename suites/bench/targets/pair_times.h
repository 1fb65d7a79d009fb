#pragma once
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace suites {

/// Times of pairs of calls, ours and dense attention in one or more types, pass by pass, and the
/// ratios dense / ours of their sums.
class PairTimes {
 public:
  /// `passes`: what a call consists of, in order; more than one have their sum as pass `both`.
  PairTimes(std::vector<std::string> dense, std::vector<std::string> passes);

  /// Takes over the pairs of a row that write() made with the same arms and passes; others count as
  /// none.
  void resume(const nlohmann::json& row);
  size_t count() const { return ours_.empty() ? 0 : ours_.front().size(); }

  /// One pair: ms of each pass, of ours and of each dense attention.
  void add(const std::vector<double>& ours, const std::vector<std::vector<double>>& dense);

  /// row["ours"][PASS], row["dense"][TYPE][PASS] and ["ratio"], and row["ratio"], for which the
  /// fastest dense attention of each pair counts; each with its samples and the interval of its
  /// median.
  void write(nlohmann::json& row) const;

 private:
  using Passes = std::vector<std::vector<double>>;  ///< by pass
  std::vector<double> sums(const Passes& arm) const;

  std::vector<std::string> dense_names_, passes_;
  Passes ours_;
  std::vector<Passes> dense_;
};

/// Whether a row needs no more pairs: it has `pairs` of them and no problem.
bool is_complete(const nlohmann::json& row, size_t pairs);

/// Throws std::invalid_argument unless `earlier` is of the same machine, libraries, threads and
/// seed as `report`, so that its cases may stand beside new ones.
void require_same_setting(const nlohmann::json& earlier, const nlohmann::json& report);

/// The row with this id and configuration; null where there is none.
const nlohmann::json* find_case(const nlohmann::json& report, const std::string& id,
                                const std::string& config);

}  // namespace suites
