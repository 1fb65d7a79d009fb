#pragma once
#include <filesystem>
#include <string>

#include "harness/evidence/storage/files.h"
#include "harness/provenance/build/build_id.h"
#include "harness/provenance/build/elf_note.h"
#include "harness/schema/write.h"

namespace harness {

/// build_id.json and one program in `bin_dir`, as a build of `checkout` would leave them for the
/// tests of this folder; `changed_file` had another content then.
inline void write_build_id(const std::filesystem::path& bin_dir,
                           const std::filesystem::path& checkout,
                           const std::string& changed_file = "") {
  BuildId id;
  id.compiler = "c";
  id.files = hash_sources(checkout);
  if (!changed_file.empty()) id.files[changed_file] = "00";
  id.id = build_id_of(id.files, id.compiler, id.flags);
  std::filesystem::create_directories(bin_dir);
  std::filesystem::copy_file("/proc/self/exe", bin_dir / "program",
                             std::filesystem::copy_options::overwrite_existing);
  add_program(id, bin_dir, "program");
  if (std::filesystem::exists(bin_dir / "nsa-worker")) add_program(id, bin_dir, "nsa-worker");
  write_bytes(bin_dir / "build_id.json", pretty_dump(to_json(id)));
}

}  // namespace harness
