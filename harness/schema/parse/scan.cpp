#include "harness/schema/parse/scan.h"

#include <nlohmann/json.hpp>

namespace harness {
namespace {

class Scanner {
 public:
  Scanner(std::string_view text, size_t max_depth) : text_(text), max_depth_(max_depth) {}

  JsonScan run() {
    for (size_t at = 0; at < text_.size() && !scan_.too_deep;) at = step(at);
    return std::move(scan_);
  }

 private:
  struct Bracket {
    size_t offset;
    bool object;
  };

  /// Takes the token at `at`; returns the offset behind it.
  size_t step(size_t at) {
    switch (text_[at]) {
      case '{':
      case '[':
        open_.push_back({at, text_[at] == '{'});
        if (open_.size() > max_depth_) scan_.too_deep = at;
        return at + 1;
      case '}':
      case ']':
        if (!open_.empty()) open_.pop_back();
        return at + 1;
      case '"':
        return take_string(at);
      case '/':
        return skip_comment(at);
      default:
        return at + 1;
    }
  }

  size_t take_string(size_t at) {
    size_t end = at + 1;
    while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
    end = std::min(end + 1, text_.size());
    const size_t next = skip_blank(end);
    if (next < text_.size() && text_[next] == ':' && !open_.empty() && open_.back().object)
      scan_.keys.push_back({open_.back().offset, at, decode(text_.substr(at, end - at))});
    return end;
  }

  /// The characters a key's literal stands for ("\u0061" is "a"), so that no duplicate hides.
  static std::string decode(std::string_view literal) {
    const auto value = nlohmann::json::parse(literal, nullptr, /*allow_exceptions=*/false);
    return value.is_string() ? value.get<std::string>() : std::string(literal);
  }

  size_t skip_blank(size_t at) const {
    while (at < text_.size()) {
      if (text_[at] == '/') {
        const size_t end = skip_comment(at);
        if (end == at + 1) return at;
        at = end;
      } else if (std::string_view(" \t\r\n").find(text_[at]) != std::string_view::npos) {
        ++at;
      } else {
        return at;
      }
    }
    return at;
  }

  /// Behind the comment that starts at `at`; at + 1 when none does.
  size_t skip_comment(size_t at) const {
    const std::string_view rest = text_.substr(at);
    const auto behind = [&](std::string_view close, size_t from) {
      const size_t end = text_.find(close, from);
      return end == std::string_view::npos ? text_.size() : end + close.size();
    };
    if (rest.starts_with("//")) return behind("\n", at + 2);
    if (rest.starts_with("/*")) return behind("*/", at + 2);
    return at + 1;
  }

  std::string_view text_;
  size_t max_depth_;
  std::vector<Bracket> open_;
  JsonScan scan_;
};

}  // namespace

JsonScan scan_json(std::string_view text, size_t max_depth) {
  return Scanner(text, max_depth).run();
}

}  // namespace harness
