#pragma once
#include <filesystem>
#include <string>

#include "nsa/train/data/documents/documents.h"

namespace nsa::train {

/// Calls `take` with every value of the column of text `column` of a Parquet file, in order; nulls
/// are counted. One page is in memory at a time, whatever the row groups' size. Throws InputError
/// naming file, column (a path with dots inside structs) and remedy: empty, truncated, foreign,
/// encrypted or damaged file; column missing, of another type or a list; no Parquet library here.
DocumentCounts for_each_parquet_document(const std::filesystem::path& file,
                                         const std::string& column, const TakeDocument& take);

/// The file begins and ends as Parquet files do.
bool looks_like_parquet(const std::filesystem::path& file);

/// What the module nsa_parquet exports under `kParquetEntry`: the function above behind its checks.
/// Apart, so that programs start and read text where the Parquet library is not installed.
using ReadParquet = DocumentCounts(const std::filesystem::path& file, const std::string& column,
                                   const TakeDocument& take);
inline constexpr const char* kParquetEntry = "nsa_read_parquet";

}  // namespace nsa::train
