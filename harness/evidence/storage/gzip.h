#pragma once
#include <cstdint>
#include <string>
#include <string_view>

/// The gzip format (RFC 1952) by zlib, in memory.
namespace harness {

/// Largest content that is unpacked: what claims more is no evidence of ours.
inline constexpr uint64_t kMaxUnpacked = uint64_t{4} << 30;

bool is_gzip(std::string_view bytes);

/// The same bytes give the same archive: no name, no time.
std::string gzip(std::string_view bytes);

/// Content of one gzip member. `name` stands in errors. Throws EvidenceError when it is damaged,
/// cut off, followed by other bytes, or larger than `limit`.
std::string gunzip(std::string_view packed, const std::string& name, uint64_t limit = kMaxUnpacked);

}  // namespace harness
