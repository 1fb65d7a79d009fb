#pragma once
#include <filesystem>

namespace harness {

/// Whether the evidence of the run folder is packed.
bool is_packed(const std::filesystem::path& run);

/// Packs a run folder for a repository: what is rendered (reports, results.json, plots/) and the
/// ledger stay, every other file goes into kEvidenceArchive. RunFolder reads both alike, so that
/// each command works on the packed folder, and the ledger stays valid. Throws Error when the
/// archive cannot be written; the folder is then as it was.
void pack_run(const std::filesystem::path& run);

/// The other way round.
void unpack_run(const std::filesystem::path& run);

}  // namespace harness
