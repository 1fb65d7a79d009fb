#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace nsa::train {

using TakeDocument = std::function<void(std::string_view bytes)>;

struct DocumentCounts {
  int64_t taken = 0;
  int64_t nulls = 0;  ///< rows of a Parquet column without a value; skipped
};

/// Calls `take` with the bytes of every document of `file`, in order. A file whose name ends in
/// .jsonl holds one JSON object a line, its document is the string `field`; empty lines are
/// skipped. A .parquet file's documents are the values of its column `field`
/// (parquet_documents.h). Any other file is one document, any byte is legal. Throws InputError:
/// unreadable file; FILE:LINE for a line that is not such an object; a Parquet file of another
/// name.
DocumentCounts for_each_document(const std::filesystem::path& file, const std::string& field,
                                 const TakeDocument& take);

}  // namespace nsa::train
