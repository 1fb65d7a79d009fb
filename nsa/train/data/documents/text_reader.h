#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "nsa/train/data/documents/byte_source.h"

namespace nsa::train {

/// Index of the first byte that does not belong to a well-formed UTF-8 sequence (RFC 3629: no
/// surrogates, no overlong forms, at most U+10FFFF); nothing for UTF-8 text.
std::optional<size_t> first_not_utf8(std::string_view text);

/// UTF-8 text in lines. A byte order mark at the beginning is dropped. Throws InputError naming
/// file, line and byte for what is not UTF-8; UTF-16, UTF-32 and packed data by name.
class TextReader {
 public:
  TextReader(ByteSource& source, std::string name);

  /// The next line without its newline; false at the end.
  bool next_line(std::string& line);
  /// Everything from here to the end.
  std::string rest();
  int64_t line_number() const { return line_; }  ///< of the line read last, from 1

 private:
  bool refill();
  void require_text_at_start();
  void require_utf8(std::string_view text) const;

  ByteSource& source_;
  std::string name_;
  std::string buffer_;
  size_t next_ = 0;  ///< in the buffer
  int64_t line_ = 0;
  int64_t position_ = 0;  ///< bytes of the text before the one that is checked
};

}  // namespace nsa::train
