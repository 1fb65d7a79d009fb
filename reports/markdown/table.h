#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace reports {

/// A Markdown table. Cells are Markdown already (see escape.h); a header ending in '>' is aligned
/// right, for numbers. Narrow columns are padded, so that the text reads as a table too.
class Table {
 public:
  explicit Table(std::vector<std::string> headers);
  void add(std::vector<std::string> cells);  ///< missing cells are empty, surplus ones are dropped
  bool empty() const { return rows_.empty(); }
  /// Ends with a blank line; the empty string without rows. Rows beyond `most` are counted in a
  /// sentence that refers to report.md.
  std::string markdown(size_t most = SIZE_MAX) const;
  size_t size() const { return rows_.size(); }

 private:
  std::vector<std::string> headers_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace reports
