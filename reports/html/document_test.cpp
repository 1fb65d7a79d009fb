#include "reports/html/document.h"

#include <gmock/gmock.h>

#include "reports/escape.h"

namespace reports::html {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string body(const std::string& markdown, const Drawings& drawings = {}) {
  return document(markdown, drawings).body;
}

TEST(Document, IdsAreAnchorsInTheirSectionAndLinksElsewhere) {
  const std::string text =
      body("## Findings\n\n`C-x` and `C-gone`\n\n## Acceptance criteria\n\n`C-x` `C-x`\n");
  EXPECT_THAT(text, HasSubstr("<a href=\"#C-x\"><code>C-x</code></a> and <code>C-gone</code>"));
  EXPECT_THAT(text, HasSubstr("<code id=\"C-x\">C-x</code> <a href=\"#C-x\">"));
}

TEST(Document, HeadingsHaveUniqueAnchorsAndKeepTheirOrder) {
  const Document page = document("# One\n\n## Two\n\n## Two\n\n### *Th<b>ree*\n", {});
  ASSERT_EQ(page.headings.size(), 4U);
  EXPECT_EQ(page.headings[2].anchor, "two-2");
  EXPECT_EQ(page.headings[3].level, 3);
  EXPECT_THAT(page.body, HasSubstr("<h2 id=\"two-2\">\nTwo\n</h2>"));
}

TEST(Document, OnlyTheRenderersOwnHtmlPasses) {
  const std::string text = body(
      "<details><summary>Every recorded fact</summary>\n\ninside "
      "<code>a&lt;b</code>\n\n</details>\n\n"
      "<details><summary><img src=x></summary>\n\n<script>alert(1)</script>\n\na <b "
      "onclick=x>b</b>\n\n"
      "<details ontoggle=x><summary>y</summary>\n\n<style>*{}</style>\n");
  EXPECT_THAT(text, AllOf(HasSubstr("<details><summary>Every recorded fact</summary>"),
                          HasSubstr("inside <code>a&lt;b</code>"), HasSubstr("</details>")));
  EXPECT_THAT(text,
              AllOf(Not(HasSubstr("<img")), Not(HasSubstr("script>")), Not(HasSubstr("onclick")),
                    Not(HasSubstr("ontoggle")), Not(HasSubstr("<style"))));
}

TEST(Document, LinksLeadIntoTheRunFolderOnly) {
  const std::string text = body(
      "[a](javascript:alert(1)) [b](https://example.org) [c](//example.org) [d](../../etc/passwd) "
      "[e](phases/x.json) <https://example.org> ![f](https://example.org/f.png)\n");
  EXPECT_THAT(text, AllOf(HasSubstr("<a href=\"phases/x.json\">e</a>"), Not(HasSubstr("href=\"j")),
                          Not(HasSubstr("href=\"h")), Not(HasSubstr("href=\"/")),
                          Not(HasSubstr("href=\".")), Not(HasSubstr("<img"))));
}

TEST(Document, MarksForPiecesOfHtmlCannotBeForged) {
  EXPECT_THAT(body("`C-x` \uE0000\uE001 and \uE00077\uE001\n"), HasSubstr("0 and 77"));
}

TEST(Document, TablesScrollAndTheirHeadersReportWhatTheyHead) {
  const std::string text = body("## Steps\n\n| a | b |\n| --- | --: |\n| ✅ PASS | `P-x` |\n");
  EXPECT_THAT(
      text,
      HasSubstr(
          "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table: Steps\">"));
  EXPECT_THAT(text, AllOf(HasSubstr("<th scope=\"col\">a<th"),
                          HasSubstr("<th scope=\"col\" align=\"right\">b"), HasSubstr("<thead>")));
  EXPECT_THAT(text, HasSubstr("<td><span class=\"status good\">PASS</span><td>"));
  EXPECT_THAT(text, HasSubstr("<code id=\"P-x\">"));
}

TEST(Document, TablesCarryTheNamesOfTheirColumns) {
  const std::string text = body("| a `b` | \"c\" |\n| --- | --: |\n| 1 | 2 |\n| 3 | |\n");
  EXPECT_THAT(text, HasSubstr("<th scope=\"col\">a <code>b</code><th"));
  EXPECT_THAT(text, HasSubstr("<table style=\"--c1:'a b';--c2:'\\22 c\\22 ';--a2:right;"
                              "--w2:nowrap;\">"));
  EXPECT_THAT(text, HasSubstr("<td>1<td>2\n<tr>"));
  EXPECT_THAT(body("|  |  |\n| --- | --- |\n| x | y |\n"),
              AllOf(HasSubstr("<table>"), HasSubstr("<td>x<td>y")));
}

TEST(Document, NamesOfColumnsCannotLeaveTheirString) {
  const std::string text =
      body("| a';background:url(http://e/x) | <b>&amp;\" |\n| --- | --- |\n| 1 | 2 |\n");
  const size_t begin = text.find("style=\"") + 7;
  const std::string style = text.substr(begin, text.find('"', begin) - begin);
  EXPECT_EQ(std::ranges::count(style, '\''), 4) << style;
  EXPECT_EQ(std::ranges::count(style, ';'), 2) << style;
  EXPECT_THAT(style, AllOf(Not(HasSubstr("(")), Not(HasSubstr("/")), Not(HasSubstr("&"))));
}

TEST(Document, PlotsAreDrawnInPlaceOrReportedToBeMissing) {
  const std::string markdown = "![loss over steps](plots/loss.svg)\n";
  EXPECT_THAT(body(markdown, {{"plots/loss.svg", "<svg>1</svg>"}}),
              HasSubstr("<figure><svg>1</svg><figcaption>loss over steps</figcaption></figure>"));
  EXPECT_THAT(body(markdown), HasSubstr("Not drawn: gnuplot was not found"));
}

TEST(Document, HostileTextStaysText) {
  for (const char* text : {"<script>alert(1)</script>", "</code></td><img src=x onerror=alert(1)>",
                           "javascript:alert(1)", "&lt;b&gt;", "![x](http://e/x.png)",
                           "\x1b[31m<b>", "`</code><b>`", "<details><summary>x</summary>"}) {
    const std::string page =
        body("| a |\n| --- |\n| " + escape(text) + " " + code(text) + " |\n\n" + escape(text) +
             "\n\n# " + escape(text) + "\n\n" + fenced(text));
    EXPECT_THAT(page,
                AllOf(Not(HasSubstr("<script")), Not(HasSubstr("<img")), Not(HasSubstr("<b>")),
                      Not(HasSubstr("<details")), Not(HasSubstr("omitted"))))
        << text;
  }
}

}  // namespace
}  // namespace reports::html
