#pragma once
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

/// Deterministic tar archives (POSIX.1-2001: ustar headers, a pax header where a path is too long):
/// the same files give the same bytes, independent of user and time. Any tar program reads them.
namespace harness {

struct TarMember {
  std::string path;
  uint64_t offset = 0;  ///< of the content in the archive
  uint64_t bytes = 0;
};

/// Header blocks of one regular file: mode 0644, owner 0, modification time 0.
std::string tar_header(const std::string& path, uint64_t bytes);

/// Zero bytes that fill the content of `bytes` bytes up to a whole block.
std::string tar_padding(uint64_t bytes);

/// The two zero blocks at the end.
std::string tar_end();

/// Members of an archive, in its order; folders are left out. `name` stands in errors. Throws
/// EvidenceError for a damaged or cut archive, a path that leaves the archive, a path that occurs
/// twice, and members that are neither files nor folders.
std::vector<TarMember> read_tar(std::istream& archive, const std::string& name);
std::vector<TarMember> read_tar(const std::filesystem::path& archive);

}  // namespace harness
