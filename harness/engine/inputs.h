#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace harness {

/// The files that a run is judged by besides its evidence (runbook, plan, environment, ...), kept
/// in memory from its start: its processes can write to the run folder, and the run is judged by
/// what was planned.
class Inputs {
 public:
  /// Reads them; before the first process starts.
  explicit Inputs(std::filesystem::path root);

  /// Puts every file back that was changed, removed or added since, and keeps what was there as
  /// rewritten/FILE: evidence that does not verify. Returns the files it put back.
  std::vector<std::string> restore();

 private:
  void put_back(const std::string& file, const std::optional<std::string>& planned);

  std::filesystem::path root_;
  std::map<std::string, std::optional<std::string>> planned_;  ///< none: there was no such file
  std::map<std::string, std::string> rewritten_;               ///< FILE -> what was there instead
};

}  // namespace harness
