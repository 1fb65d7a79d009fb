#include "harness/evidence/storage/tar.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <numeric>
#include <set>

#include "harness/evidence/error.h"

namespace harness {
namespace {

constexpr size_t kBlock = 512;

/// Field offsets and sizes of a ustar header.
struct Field {
  size_t at, size;
};
constexpr Field kName{0, 100}, kMode{100, 8}, kUid{108, 8}, kGid{116, 8}, kSize{124, 12},
    kTime{136, 12}, kSum{148, 8}, kType{156, 1}, kMagic{257, 8}, kPrefix{345, 155};

void put(std::string& block, Field field, std::string_view text) {
  block.replace(field.at, text.size(), text);
}

void put_octal(std::string& block, Field field, uint64_t value) {
  std::string digits(field.size - 1, '0');
  for (size_t i = digits.size(); i-- > 0; value /= 8)
    digits[i] = static_cast<char>('0' + value % 8);
  put(block, field, digits);
}

uint64_t checksum(std::string block) {
  put(block, kSum, "        ");
  return std::accumulate(block.begin(), block.end(), uint64_t{0},
                         [](uint64_t sum, char c) { return sum + static_cast<unsigned char>(c); });
}

std::string block_for(std::string_view name, std::string_view prefix, uint64_t bytes, char type) {
  std::string block(kBlock, '\0');
  put(block, kName, name);
  put(block, kPrefix, prefix);
  put_octal(block, kMode, 0644);
  put_octal(block, kUid, 0);
  put_octal(block, kGid, 0);
  put_octal(block, kSize, bytes);
  put_octal(block, kTime, 0);
  put(block, kType, std::string_view(&type, 1));
  put(block, kMagic, std::string_view("ustar\00000", 8));
  put_octal(block, {kSum.at, 7}, checksum(block));
  put(block, {kSum.at + 7, 1}, " ");
  return block;
}

/// "LENGTH path=...\n", where LENGTH counts itself.
std::string pax_record(const std::string& path) {
  const std::string rest = " path=" + path + "\n";
  size_t length = rest.size();
  while (std::to_string(length).size() + rest.size() != length)
    length = std::to_string(length).size() + rest.size();
  return std::to_string(length) + rest;
}

std::string text_of(const std::string& block, Field field) {
  const std::string_view view(block.data() + field.at, field.size);
  return std::string(view.substr(0, view.find('\0')));
}

class ArchiveReader {
 public:
  ArchiveReader(std::istream& archive, std::string name) : name_(std::move(name)), in_(archive) {
    if (!in_) fail("cannot be read");
    in_.seekg(0, std::ios::end);
    size_ = static_cast<uint64_t>(in_.tellg());
    in_.seekg(0);
  }

  std::vector<TarMember> members() {
    std::vector<TarMember> found;
    std::set<std::string> seen;
    std::string long_path;
    for (std::string block = next(); block != std::string(kBlock, '\0'); block = next()) {
      const uint64_t bytes = check_header(block);
      const char type = block[kType.at];
      if (type == 'x') {
        long_path = pax_path(content(bytes));
        continue;
      }
      std::string path = long_path.empty() ? ustar_path(block) : long_path;
      long_path.clear();
      if (type == '5') continue;
      if (type != '0' && type != '\0') fail("'" + path + "' is neither a file nor a folder");
      check_path(path);
      if (!seen.insert(path).second) fail("holds '" + path + "' twice");
      found.push_back({path, static_cast<uint64_t>(in_.tellg()), bytes});
      skip(bytes);
    }
    check_rest();
    return found;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw EvidenceError(name_, what); }

  std::string next() {
    std::string block(kBlock, '\0');
    if (!in_.read(block.data(), kBlock)) fail("the archive is cut off before its end");
    return block;
  }

  uint64_t check_header(const std::string& block) const {
    const std::string where = "the header before byte " + std::to_string(at());
    const bool whole = block.compare(kSum.at + 6, 2, std::string_view("\0 ", 2)) == 0;
    if (!whole || octal(block, kSum) != checksum(block)) fail(where + " is damaged");
    if (!text_of(block, kMagic).starts_with("ustar")) fail(where + " is not a ustar header");
    return octal(block, kSize);
  }

  uint64_t octal(const std::string& block, Field field) const {
    uint64_t value = 0;
    const char* end = block.data() + field.at + field.size;
    const char* begin = std::find_if(block.data() + field.at, end, [](char c) { return c != ' '; });
    if (std::from_chars(begin, end, value, 8).ec != std::errc())
      fail("a number in a header is damaged");
    return value;
  }

  static std::string ustar_path(const std::string& block) {
    const std::string prefix = text_of(block, kPrefix);
    return (prefix.empty() ? "" : prefix + "/") + text_of(block, kName);
  }

  std::string pax_path(const std::string& record) const {
    const size_t at = record.find(" path=");
    if (at == std::string::npos || record.back() != '\n') fail("a long path is damaged");
    return record.substr(at + 6, record.size() - at - 7);
  }

  void check_path(const std::string& path) const {
    for (const auto& part : std::filesystem::path(path))
      if (part == ".." || path.starts_with("/")) fail("'" + path + "' leaves the archive");
  }

  std::string content(uint64_t bytes) {
    if (bytes > size_ - at()) fail("the archive is cut off before its end");
    std::string text(bytes, '\0');
    in_.read(text.data(), static_cast<std::streamsize>(bytes));
    read_padding(bytes);
    return text;
  }

  void skip(uint64_t bytes) {
    if (bytes > size_ - at()) fail("the archive is cut off before its end");
    in_.seekg(static_cast<std::streamoff>(bytes), std::ios::cur);
    read_padding(bytes);
  }

  void read_padding(uint64_t bytes) {
    std::string padding = tar_padding(bytes);
    const std::string zeros = padding;
    if (!in_.read(padding.data(), static_cast<std::streamsize>(padding.size())))
      fail("the archive is cut off before its end");
    if (padding != zeros) fail("bytes between two members are not zero");
  }

  void check_rest() {
    const std::string rest{std::istreambuf_iterator<char>(in_), {}};
    if (rest.size() < kBlock) fail("the archive is cut off before its end");
    if (rest.find_first_not_of('\0') != std::string::npos)
      fail("bytes behind the end are not zero");
  }

  uint64_t at() const { return static_cast<uint64_t>(in_.tellg()); }

  std::string name_;
  std::istream& in_;
  uint64_t size_ = 0;
};

}  // namespace

std::string tar_header(const std::string& path, uint64_t bytes) {
  if (path.size() <= kName.size) return block_for(path, "", bytes, '0');
  // Split at a slash so that the front fits the prefix field and the rest the name field.
  const size_t cut = path.find('/', path.size() - kName.size - 1);
  if (cut <= kPrefix.size && cut + 1 < path.size())  // npos is neither
    return block_for(path.substr(cut + 1), path.substr(0, cut), bytes, '0');
  const std::string record = pax_record(path);
  return block_for("pax", "", record.size(), 'x') + record + tar_padding(record.size()) +
         block_for(path.substr(path.size() - kName.size), "", bytes, '0');
}

std::string tar_padding(uint64_t bytes) {
  return std::string((kBlock - bytes % kBlock) % kBlock, '\0');
}

std::string tar_end() { return std::string(2 * kBlock, '\0'); }

std::vector<TarMember> read_tar(std::istream& archive, const std::string& name) {
  return ArchiveReader(archive, name).members();
}

std::vector<TarMember> read_tar(const std::filesystem::path& archive) {
  std::ifstream in(archive, std::ios::binary);
  return read_tar(in, archive.filename().string());
}

}  // namespace harness
