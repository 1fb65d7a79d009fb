#pragma once
#include <filesystem>
#include <string>

namespace harness {

/// The linker's build id (note NT_GNU_BUILD_ID) of a 64-bit ELF file, lower-case hex. Empty when
/// the file is none or has no such note.
std::string gnu_build_id(const std::filesystem::path& program);

}  // namespace harness
