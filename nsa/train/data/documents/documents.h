#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "nsa/train/data/manifest.h"

namespace nsa::train {

using TakeDocument = std::function<void(std::string_view bytes)>;

struct DocumentCounts {
  int64_t taken = 0;
  int64_t nulls = 0;      ///< rows of a Parquet column, JSON objects, whose text is null; skipped
  int64_t nul_bytes = 0;  ///< inside documents; as tokens each ends a document
};

inline constexpr const char* kFormatsRead =
    ".txt, .jsonl, .ndjson, .json, .parquet, all but the last also as .gz or .zst";

/// Calls `take` with the bytes of every document of `file`, in order. The format is given by the
/// end of the file's name, in any case, or by `format` (txt, jsonl or json) if that is not empty:
/// - .txt is one document;
/// - .jsonl and .ndjson hold one JSON object a line, its document is the string `field`; empty
///   lines are skipped;
/// - .json holds an array of such objects, one object, or one a line;
/// - .parquet: the values of the column `field` (parquet_documents.h).
/// A name may go on with .gz or .zst. Documents are UTF-8; a byte order mark is dropped. `source`
/// receives size and hash of the file; may be null. Throws InputError: unreadable file; a name
/// without a known ending; FILE:LINE for a line that is no such object or no UTF-8; packed or
/// damaged data.
DocumentCounts for_each_document(const std::filesystem::path& file, const std::string& field,
                                 const TakeDocument& take, const std::string& format = "",
                                 SourceFile* source = nullptr);

/// Throws InputError for a missing file, and for a name without a known ending; reads nothing.
void require_known_format(const std::filesystem::path& file, const std::string& format);

}  // namespace nsa::train
