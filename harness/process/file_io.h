#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "harness/process/fd.h"
#include "harness/schema/error.h"

namespace harness {

/// A file could not be read or written (exit code 3). The text names path, operation and reason.
class FileError : public Error {
 public:
  using Error::Error;
};

/// No room for a write: full disk, quota or file size limit. What was on disk before is untouched.
class DiskFull : public FileError {
 public:
  using FileError::FileError;
};

/// Throws DiskFull or FileError, as `error` (errno) says.
[[noreturn]] void throw_file_error(const std::filesystem::path& path, const char* doing, int error);

/// Whole file as bytes. Throws FileError.
std::string read_file(const std::filesystem::path& path);

/// Replaces a file so that a reader, or a machine that loses power, sees the old or the new content
/// and nothing between: temporary file beside it, fsync, rename, fsync of the folder. Throws
/// DiskFull or FileError and leaves no temporary.
void write_file_atomic(const std::filesystem::path& path, std::string_view content);

/// Creates a new file for appending; an existing one is an error (stale leftovers are never
/// appended to).
Fd create_append(const std::filesystem::path& path);

/// fsync of a file or folder by name. Throws FileError.
void sync_path(const std::filesystem::path& path);

/// Free bytes of the file system that holds `path`; 0 when unknown.
uint64_t free_bytes(const std::filesystem::path& path);

}  // namespace harness
