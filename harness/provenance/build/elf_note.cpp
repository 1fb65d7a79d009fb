#include "harness/provenance/build/elf_note.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>
#include <vector>

namespace harness {
namespace {

template <class T>
std::optional<T> read_at(std::ifstream& in, uint64_t offset) {
  T value;
  in.clear();
  in.seekg(static_cast<std::streamoff>(offset));
  if (!in.read(reinterpret_cast<char*>(&value), sizeof value)) return std::nullopt;
  return value;
}

std::string hex(const std::string& bytes) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    text += kDigits[static_cast<unsigned char>(c) >> 4];
    text += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

/// Walks the notes of one segment; `bytes`: size of the file, which no
/// note may exceed whatever size it declares.
std::string build_id_in(std::ifstream& in, const Elf64_Phdr& segment, uint64_t bytes) {
  const auto aligned = [](uint64_t size) { return (size + 3) / 4 * 4; };
  if (segment.p_offset > bytes || segment.p_filesz > bytes - segment.p_offset) return "";
  for (uint64_t at = segment.p_offset; at < segment.p_offset + segment.p_filesz;) {
    const auto note = read_at<Elf64_Nhdr>(in, at);
    if (!note || note->n_namesz > segment.p_filesz || note->n_descsz > segment.p_filesz) return "";
    std::string text(aligned(note->n_namesz) + note->n_descsz, '\0');
    if (!in.read(text.data(), static_cast<std::streamsize>(text.size()))) return "";
    if (note->n_type == NT_GNU_BUILD_ID && text.starts_with(std::string_view("GNU\0", 4)))
      return hex(text.substr(aligned(note->n_namesz)));
    at += sizeof *note + aligned(note->n_namesz) + aligned(note->n_descsz);
  }
  return "";
}

}  // namespace

std::string gnu_build_id(const std::filesystem::path& program) {
  std::ifstream in(program, std::ios::binary);
  const auto header = read_at<Elf64_Ehdr>(in, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != ELFCLASS64)
    return "";
  std::error_code error;
  const uint64_t bytes = std::filesystem::file_size(program, error);
  if (error) return "";
  for (uint64_t i = 0; i < header->e_phnum; ++i) {
    const auto segment = read_at<Elf64_Phdr>(in, header->e_phoff + i * header->e_phentsize);
    if (!segment || segment->p_type != PT_NOTE) continue;
    const std::string id = build_id_in(in, *segment, bytes);
    if (!id.empty()) return id;
  }
  return "";
}

}  // namespace harness
