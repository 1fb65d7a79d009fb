#pragma once
#include <filesystem>
#include <string>

namespace nsa::train {

/// Folder of the corpus `name` below `root`. A relative root is looked for in the working folder
/// and then, as configs are, beside the program and up to three folders above it: a checkout or an
/// installed tree works from anywhere. ROOT/NAME of the working folder where none has it.
std::filesystem::path corpus_folder(const std::filesystem::path& root, const std::string& name);

}  // namespace nsa::train
