#pragma once
#include <filesystem>
#include <functional>
#include <string_view>

namespace nsa::train {

/// Calls `take` with the bytes of every document of `file`, in order. A file whose name ends in
/// .jsonl holds one JSON object a line, its document is the string field "text"; empty lines are
/// skipped. Any other file is one document, any byte is legal. Throws InputError: unreadable file;
/// FILE:LINE for a line that is not such an object.
void for_each_document(const std::filesystem::path& file,
                       const std::function<void(std::string_view)>& take);

}  // namespace nsa::train
