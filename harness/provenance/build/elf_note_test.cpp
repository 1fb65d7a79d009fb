#include "harness/provenance/build/elf_note.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>

#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"

namespace harness {
namespace {

TEST(ElfNote, ThisProgramHasOne) {
  const std::string id = gnu_build_id("/proc/self/exe");
  EXPECT_GE(id.size(), 16U);
  EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos);
}

TEST(ElfNote, WhatIsNoProgramHasNone) {
  const TempDir dir;
  write_bytes(dir / "text", "#!/bin/sh\n");
  write_bytes(dir / "empty", "");
  for (const std::string& path : {(dir / "text").string(), (dir / "empty").string(),
                                  dir.path().string(), (dir / "missing").string()})
    EXPECT_EQ(gnu_build_id(path), "") << path;
}

TEST(ElfNote, CutAndLyingFilesAreReadWithoutHarm) {
  const TempDir dir;
  const std::string whole = read_bytes("/proc/self/exe").substr(0, 1 << 16);
  for (size_t size : {size_t{10}, sizeof(Elf64_Ehdr), size_t{200}, size_t{600}, size_t{1000}}) {
    write_bytes(dir / "cut", whole.substr(0, size));
    gnu_build_id(dir / "cut");
  }
  // Every size in every program header as large as it can be: nothing may be allocated by it.
  std::string lying = whole;
  Elf64_Ehdr header;
  std::memcpy(&header, lying.data(), sizeof header);
  for (size_t i = 0; i < header.e_phnum; ++i) {
    const size_t at = header.e_phoff + i * sizeof(Elf64_Phdr);
    std::memset(lying.data() + at + offsetof(Elf64_Phdr, p_filesz), 0xff, 8);
  }
  write_bytes(dir / "lying", lying);
  EXPECT_EQ(gnu_build_id(dir / "lying"), "");
}

}  // namespace
}  // namespace harness
