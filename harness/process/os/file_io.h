#pragma once
#include <cstdint>
#include <filesystem>

#include "harness/process/os/fd.h"

/// The file operations of running processes; whole files are read and written with
/// harness/evidence/storage/files.h.
namespace harness {

/// Throws Error "cannot DOING PATH: REASON", with the remedy when there is no room (disk, quota or
/// file size limit).
[[noreturn]] void throw_file_error(const std::filesystem::path& path, const char* doing, int error);

/// Creates a new file for appending; an existing one is an error: stale leftovers are never
/// appended to.
Fd create_append(const std::filesystem::path& path);

/// fsync of a file or folder by name. Throws Error.
void sync_path(const std::filesystem::path& path);

/// Free bytes of the file system that holds `path`; the largest number when unknown.
uint64_t free_bytes(const std::filesystem::path& path);

}  // namespace harness
