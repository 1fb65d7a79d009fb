#include "reports/escape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace reports {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Plain, KeepsOrdinaryTextOfAnyLanguage) {
  for (const char* text : {"", "ranges_ab, 4.35 ms", "größer als µ – 中文 🙂"})
    EXPECT_EQ(plain(text), text);
}

TEST(Plain, ControlCharactersAndAnsiVanish) {
  EXPECT_EQ(plain("a\x1b[31;1mred\x1b[0m b"), "ared b");
  EXPECT_EQ(plain("a\x1b]0;title\x07z"), "a]0;titlez");
  EXPECT_EQ(plain("unfinished \x1b["), "unfinished ");
  EXPECT_EQ(plain("line\nbreak\r\ttab"), "line break  tab");
  EXPECT_EQ(plain(std::string("nul\0byte", 8)), "nulbyte");
  EXPECT_EQ(plain("c1 \u0085 control, del \x7f"), "c1  control, del ");
}

TEST(Plain, InvisibleAndReorderingCharactersVanish) {
  EXPECT_EQ(plain("pay\u202Eload\u200Bx\uFEFF\u2066"), "payloadx");
}

TEST(Plain, InvalidUtf8BecomesReplacementCharacters) {
  EXPECT_EQ(plain("a\xff"
                  "b"),
            "a\uFFFDb");
  EXPECT_EQ(plain("cut \xe4\xb8"), "cut \uFFFD\uFFFD");
  EXPECT_EQ(plain("overlong \xc0\xaf"), "overlong \uFFFD\uFFFD");
  EXPECT_EQ(plain("surrogate \xed\xa0\x80"), "surrogate \uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(plain("beyond \xf4\x90\x80\x80"), "beyond \uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(plain("\xf8\x88\x80\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
}

TEST(Plain, CutsAtCharacters) {
  EXPECT_EQ(plain("abcdef", 6), "abcdef");
  EXPECT_EQ(plain("abcdef", 4), "abc…");
  EXPECT_EQ(plain("ääää", 3), "ää…");
}

TEST(Escape, MarkupHtmlAndTablesAreInert) {
  EXPECT_EQ(escape("a | b"), "a \\| b");
  EXPECT_EQ(escape("`code` *b* ~s~ $x$ \\"), "\\`code\\` \\*b\\* \\~s\\~ \\$x\\$ \\\\");
  EXPECT_EQ(escape("<script>alert(1)</script>"), "&lt;script&gt;alert(1)&lt;/script&gt;");
  EXPECT_EQ(escape("&lt;"), "&amp;lt;");
  EXPECT_EQ(escape("[x](javascript:y)"), "\\[x\\](javascript:y)");
  EXPECT_EQ(escape("![x](y)"), "!\\[x\\](y)");
  EXPECT_EQ(escape("snake_case and _emphasis_"), "snake_case and \\_emphasis\\_");
}

TEST(Escape, ComparisonsStayReadable) {
  EXPECT_EQ(escape("lower bound 1.6 >= 1.5 > 1"), "lower bound 1.6 >= 1.5 > 1");
}

TEST(Escape, NothingStartsABlock) {
  EXPECT_EQ(escape("# title"), "\\# title");
  EXPECT_EQ(escape("#5"), "\\#&#8203;5");
  EXPECT_EQ(escape("> quote"), "&gt; quote");
  EXPECT_EQ(escape("- item"), "\\- item");
  EXPECT_EQ(escape("--- "), "\\--- ");
  EXPECT_EQ(escape("=== "), "\\=== ");
  EXPECT_EQ(escape("1. item"), "1\\. item");
  EXPECT_EQ(escape("2) item"), "2\\) item");
  EXPECT_EQ(escape("1.5 ms, -3 and -O2"), "1.5 ms, -3 and -O2");
}

TEST(Escape, NoMentionsReferencesOrLinks) {
  EXPECT_EQ(escape("by @someone"), "by @&#8203;someone");
  EXPECT_EQ(escape("see #12"), "see #&#8203;12");
  EXPECT_EQ(escape("https://example.org"), "https:&#8203;//example.org");
  EXPECT_EQ(escape("www.example.org"), "www&#8203;.example.org");
  EXPECT_EQ(escape("WwW.example.org"), "WwW&#8203;.example.org");
  EXPECT_EQ(escape("what it would show."), "what it would show.");
  EXPECT_EQ(escape("C# and 100 @ 5"), "C# and 100 @&#8203; 5");
}

TEST(Code, SafeTextInASpanTheRestEscaped) {
  EXPECT_EQ(code("M-ranges_ab.v2.call_ms"), "`M-ranges_ab.v2.call_ms`");
  EXPECT_EQ(code("a`b"), "<code>a\\`b</code>");
  EXPECT_EQ(code("a|b"), "<code>a\\|b</code>");
  EXPECT_EQ(code("<b>"), "<code>&lt;b&gt;</code>");
  EXPECT_EQ(code(" x"), "<code> x</code>");
  EXPECT_EQ(code(""), "<code></code>");
  EXPECT_THAT(code("x\ny"), Not(HasSubstr("\n")));
}

TEST(FileLink, OnlyIntoTheRunFolder) {
  EXPECT_EQ(file_link("g01.jsonl", "phases/p/g01.jsonl"), "[g01.jsonl](phases/p/g01.jsonl)");
  for (const char* path :
       {"/etc/passwd", "../x", "a/../b", "javascript:x", "https://x", "a b", "x)y", "//host/x", ""})
    EXPECT_THAT(file_link("text", path), Not(HasSubstr("]("))) << path;
}

TEST(Fenced, TextCannotLeave) {
  EXPECT_EQ(fenced("a\nb"), "```\na\nb\n```\n");
  EXPECT_EQ(fenced("x\n```\ny", "sh"), "````sh\nx\n```\ny\n````\n");
  EXPECT_EQ(fenced("`````"), "``````\n`````\n``````\n");
  EXPECT_EQ(fenced("\x1b[1mbold\x1b[0m"), "```\nbold\n```\n");
}

}  // namespace
}  // namespace reports
