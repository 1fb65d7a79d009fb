#pragma once
#include <string>
#include <string_view>

#include "harness/evidence/storage/gzip.h"

/// The .xz format by liblzma, in memory: of a run's evidence it makes up to two thirds of what
/// gzip makes.
namespace harness {

bool is_xz(std::string_view bytes);

/// The same bytes give the same archive.
std::string xz(std::string_view bytes);

/// Content of one .xz stream. `name` stands in errors. Throws EvidenceError when it is damaged, cut
/// off, followed by other bytes, or larger than `limit`.
std::string unxz(std::string_view packed, const std::string& name, uint64_t limit = kMaxUnpacked);

}  // namespace harness
