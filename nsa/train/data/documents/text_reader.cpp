#include "nsa/train/data/documents/text_reader.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "nsa/program/input_error.h"

namespace nsa::train {
namespace {

constexpr size_t kTextChunk = size_t{1} << 16;
constexpr size_t kLookedAt = 4096;  ///< bytes from which UTF-16 without a mark is recognised
constexpr std::string_view kUtf8Mark = "\xef\xbb\xbf";

struct Signature {
  std::string_view bytes;
  const char* what;
  const char* remedy;
};

using namespace std::string_view_literals;
/// The longer ones first: UTF-32 begins as UTF-16 does.
constexpr Signature kSignatures[] = {
    {"\xff\xfe\0\0"sv, "UTF-32 text", "convert it first: iconv -f utf-32 -t utf-8"},
    {"\0\0\xfe\xff"sv, "UTF-32 text", "convert it first: iconv -f utf-32 -t utf-8"},
    {"\xff\xfe"sv, "UTF-16 text", "convert it first: iconv -f utf-16 -t utf-8"},
    {"\xfe\xff"sv, "UTF-16 text", "convert it first: iconv -f utf-16 -t utf-8"},
    {"\x1f\x8b"sv, "gzip data", "let its name end in .gz"},
    {"\x28\xb5\x2f\xfd"sv, "zstd data", "let its name end in .zst"},
    {"PK\3\4"sv, "a zip archive", "unpack it first"},
    {"\xfd"
     "7zXZ\0"sv,
     "xz data", "unpack it first"},
    {"BZh9"sv, "bzip2 data", "unpack it first"}};

/// Length of the sequence that begins with `lead`, and the bounds of its second byte; 0: none.
struct Form {
  size_t length;
  uint8_t low, high;
};
Form form_of(uint8_t lead) {
  if (lead < 0x80) return {1, 0, 0};
  if (lead >= 0xc2 && lead <= 0xdf) return {2, 0x80, 0xbf};
  if (lead == 0xe0) return {3, 0xa0, 0xbf};
  if (lead == 0xed) return {3, 0x80, 0x9f};
  if (lead >= 0xe1 && lead <= 0xef) return {3, 0x80, 0xbf};
  if (lead == 0xf0) return {4, 0x90, 0xbf};
  if (lead >= 0xf1 && lead <= 0xf3) return {4, 0x80, 0xbf};
  if (lead == 0xf4) return {4, 0x80, 0x8f};
  return {0, 0, 0};
}

bool begins_well_formed(std::string_view text, const Form& form) {
  if (form.length == 0 || text.size() < form.length) return false;
  for (size_t i = 1; i < form.length; ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte < (i == 1 ? form.low : 0x80) || byte > (i == 1 ? form.high : 0xbf)) return false;
  }
  return true;
}

/// Every second byte is 0 for most characters of the languages of Europe; in UTF-8 text none is.
bool looks_like_utf16(std::string_view text) {
  text = text.substr(0, kLookedAt);
  size_t zeros[2] = {0, 0};
  for (size_t i = 0; i < text.size(); ++i) zeros[i % 2] += text[i] == '\0';
  const size_t pairs = text.size() / 2;
  return pairs >= 2 && std::max(zeros[0], zeros[1]) * 2 > pairs &&
         std::min(zeros[0], zeros[1]) * 20 <= pairs;
}

}  // namespace

std::optional<size_t> first_not_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const Form form = form_of(static_cast<uint8_t>(text[i]));
    if (!begins_well_formed(text.substr(i), form)) return i;
    i += form.length;
  }
  return std::nullopt;
}

TextReader::TextReader(ByteSource& source, std::string name)
    : source_(source), name_(std::move(name)) {
  while (buffer_.size() < kLookedAt && refill()) {
  }
  require_text_at_start();
  if (buffer_.starts_with(kUtf8Mark)) next_ = kUtf8Mark.size();
  position_ = static_cast<int64_t>(next_);
}

void TextReader::require_text_at_start() {
  for (const Signature& signature : kSignatures)
    if (buffer_.starts_with(signature.bytes))
      throw InputError(name_ + " is " + signature.what + ", not UTF-8 text; " + signature.remedy);
  if (looks_like_utf16(buffer_))
    throw InputError(name_ + " looks like UTF-16 text without a byte order mark (every second " +
                     "byte is 0), not UTF-8 text; convert it first: iconv -f utf-16le -t utf-8");
}

bool TextReader::refill() {
  buffer_.erase(0, std::exchange(next_, 0));
  const size_t before = buffer_.size();
  buffer_.resize(before + kTextChunk);
  const size_t count = source_.read({buffer_.data() + before, kTextChunk});
  buffer_.resize(before + count);
  return count > 0;
}

bool TextReader::next_line(std::string& line) {
  size_t searched = 0;
  size_t end;
  while ((end = buffer_.find('\n', next_ + searched)) == std::string::npos) {
    searched = buffer_.size() - next_;
    if (!refill()) break;
  }
  if (end == std::string::npos && next_ == buffer_.size()) return false;
  line = buffer_.substr(next_, end == std::string::npos ? end : end - next_);
  next_ = end == std::string::npos ? buffer_.size() : end + 1;
  ++line_;
  require_utf8(line);
  position_ += static_cast<int64_t>(line.size()) + 1;
  return true;
}

std::string TextReader::rest() {
  while (refill()) {
  }
  std::string text = buffer_.substr(next_);
  next_ = buffer_.size();
  ++line_;
  require_utf8(text);
  return text;
}

void TextReader::require_utf8(std::string_view text) const {
  const auto bad = first_not_utf8(text);
  if (!bad) return;
  const auto line =
      line_ + std::count(text.begin(), text.begin() + static_cast<int64_t>(*bad), '\n');
  char byte[8];
  std::snprintf(byte, sizeof byte, "0x%02x", static_cast<uint8_t>(text[*bad]));
  throw InputError(name_ + ":" + std::to_string(line) + ": byte " +
                   std::to_string(position_ + static_cast<int64_t>(*bad)) + " of the text (" +
                   byte + ") is not UTF-8; convert the file first, e.g. iconv -f latin1 -t utf-8");
}

}  // namespace nsa::train
