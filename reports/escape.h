#pragma once
#include <string>
#include <string_view>

/// Names, logs and reasons come from workers, files and branch names: hostile until escaped. All
/// text that enters a report goes through `plain` (any format) or one of the Markdown functions
/// below, which call it.
namespace reports {

/// Text without tricks: invalid UTF-8 becomes U+FFFD; ANSI escape sequences, control characters,
/// bidirectional overrides and zero-width characters vanish; line breaks and tabs become blanks;
/// at most `max_chars` characters, the last one "…" where something was cut.
std::string plain(std::string_view text, size_t max_chars = 600);

/// Inert in Markdown, inside a table cell or outside: `plain`, then no character starts markup,
/// HTML, a link, a mention or a reference. A reader sees the same characters.
std::string escape(std::string_view text, size_t max_chars = 600);

/// An id, a path, a value: in a code span when that is safe, else `escape`d inside <code>.
std::string code(std::string_view text);

/// A link to a file of the run folder; only its text where the path could lead elsewhere.
std::string file_link(std::string_view text, std::string_view path);

/// A fenced block that its text cannot leave. Keeps line breaks, drops other control characters.
std::string fenced(std::string_view text, std::string_view language = "");

}  // namespace reports
