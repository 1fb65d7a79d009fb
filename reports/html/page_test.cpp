#include "reports/html/page.h"

#include <gmock/gmock.h>

#include <array>
#include <cctype>
#include <cmath>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "harness/schema/read.h"
#include "reports/html/style.h"

#include "base/testing/paths.h"
#include "reports/plots/data.h"
#include "reports/testing.h"

namespace reports {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(Page, LoadsAndRunsNothing) {
  const harness::Results results = testing_data::go();
  const std::string page = render_report_html(Model(results), {});
  EXPECT_THAT(
      page,
      HasSubstr("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';"));
  EXPECT_THAT(page, HasSubstr("<html lang=\"en\">"));
  EXPECT_THAT(page,
              AllOf(Not(HasSubstr("<script")), Not(HasSubstr("<link")), Not(HasSubstr("@import")),
                    Not(HasSubstr("url(")), Not(HasSubstr("http:")), Not(HasSubstr("https:")),
                    Not(HasSubstr("omitted"))));
}

TEST(Page, TheVerdictComesFirstThenTheContents) {
  const harness::Results results = testing_data::go();
  const std::string page = render_report_html(Model(results), {});
  EXPECT_LT(page.find("Do now:"), page.find("id=\"contents\""));
  EXPECT_LT(page.find("id=\"contents\""), page.find("<h2 id=\"answers\">"));
  EXPECT_THAT(page, HasSubstr("<li><a href=\"#acceptance-criteria\">Acceptance criteria</a></li>"));
  EXPECT_THAT(page, HasSubstr("<code id=\"M-p.x_count\">"));
}

TEST(Page, HostileNamesStayText) {
  harness::Results results = testing_data::go();
  const std::string hostile = "</title><script>alert(1)</script>";
  results.run.id = results.run.runbook_title = hostile;
  results.criteria[0].text = results.criteria[0].id = "C-" + hostile;
  results.metrics[0].name = results.metrics[0].id = "M-" + hostile;
  results.environment = {{"git", {{"commit", hostile}}}, {hostile, hostile}};
  const std::string page = render_report_html(Model(results), {});
  EXPECT_THAT(page, AllOf(Not(HasSubstr("<script")), HasSubstr("&lt;/title&gt;&lt;script&gt;")));
}

TEST(Page, TwiceTheSameBytes) {
  const harness::Results results = testing_data::go();
  EXPECT_EQ(render_report_html(Model(results), {}), render_report_html(Model(results), {}));
}

/// The page of a run with failures, tables, findings and plots (none drawn).
std::string golden_page() {
  const std::string path = base::source_dir() + "/reports/testdata/results.json";
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  const auto results = harness::read_json<harness::Results>(text.str(), path);
  return render_report_html(Model(results), {});
}

/// Every text between `open` and the next `close`.
std::vector<std::string> between(const std::string& text, const std::string& open,
                                 const std::string& close) {
  std::vector<std::string> found;
  for (size_t at = text.find(open); at != std::string::npos; at = text.find(open, at)) {
    at += open.size();
    const size_t end = text.find(close, at);
    if (end != std::string::npos) found.push_back(text.substr(at, end - at));
  }
  return found;
}

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

/// Opening tags with their attributes, values left out: "a href=".
std::vector<std::string> tags_of(const std::string& page) {
  std::vector<std::string> tags;
  for (size_t at = page.find('<'); at != std::string::npos; at = page.find('<', at + 1)) {
    if (std::isalpha(static_cast<unsigned char>(page[at + 1])) == 0) continue;
    std::string tag;
    bool quoted = false;
    for (size_t i = at + 1; i < page.size() && (quoted || page[i] != '>'); ++i) {
      if (page[i] == '"')
        quoted = !quoted;
      else if (!quoted)
        tag += page[i];
    }
    tags.push_back(tag);
  }
  return tags;
}

/// Text made of what means something to Markdown, HTML, SVG or gnuplot.
std::string nasty_text(uint64_t& state) {
  constexpr std::array pieces = {"<",           ">",      "&",           "\"",
                                 "'",           "`",      "``",          "|",
                                 "\\",          "\n",     "[a](",        "](",
                                 ")",           "![",     "<script>",    "</",
                                 "<!--",        "-->",    "<![CDATA[",   "# ",
                                 "- ",          "1. ",    "~~~",         "```",
                                 "***",         "__",     "javascript:", "http://e/",
                                 "&#60;",       "&lt;",   "@a",          "<details><summary>",
                                 "</details>",  "<code>", "onload=x",    "C-x",
                                 "M-p.x",       "\xff",   "\u202e",      "\uE0000\uE001",
                                 "plots/a.svg", "\t",     "a",           " ",
                                 "=\n"};
  std::string text;
  for (int i = 0; i < 12; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    text += pieces[(state >> 33) % pieces.size()];
  }
  return text;
}

harness::Results nasty_results(uint64_t& state) {
  harness::Results r = testing_data::go();
  const auto text = [&] { return nasty_text(state); };
  r.run.id = text();
  r.run.runbook = text();
  r.run.runbook_title = text();
  r.run.command_line = {text(), text()};
  r.verdict = {text(), 1, text(), text(), text(), {text()}, text()};
  r.environment = {{text(), text()}, {"git", {{"commit", text()}}}};
  r.phases[0].id = "P-" + text();
  r.phases[0].title = r.phases[0].reason = text();
  r.criteria[0].id = "C-" + text();
  r.criteria[0].text = r.criteria[0].reason = text();
  r.metrics.push_back(testing_data::comparison(text(), text(), 1.5));
  r.metrics[0].samples = {text()};
  r.artifacts = {{"A-" + text(), text(), text(), 1, text()}};
  r.findings = {{"F-" + text(), text(), text(), text(), text(), text()}};
  r.deviations = {{"D-" + text(), text(), text()}};
  r.settings = {{text(), text(), text(), text()}};
  r.tables = {{{"id", text()},
               {"title", text()},
               {"columns", {text(), text(), text()}},
               {"rows", {{text(), 1, text()}}}}};
  return r;
}

TEST(Page, WhateverTextsARunHoldsThePageHasItsOwnTagsOnly) {
  const std::set<std::string> tags = {
      "html",  "head",    "meta",    "title", "style", "body",   "a",         "main",  "nav",
      "h1",    "h2",      "h3",      "ul",    "ol",    "li",     "p",         "table", "thead",
      "tbody", "tr",      "th",      "td",    "div",   "span",   "code",      "pre",   "strong",
      "em",    "details", "summary", "hr",    "br",    "figure", "figcaption"};
  // Names of columns are strings of letters, digits, blanks and numbers of characters.
  const std::regex columns(
      "(--[caw][0-9]+:('([^'\"\\\\;:&<>(/]|\\\\[0-9a-f]{2} )*'|right|nowrap);)+");
  uint64_t state = 20250216;
  for (int run = 0; run < 100; ++run) {
    const harness::Results results = nasty_results(state);
    const std::string page = render_report_html(Model(results), {});
    for (const std::string& tag : tags_of(page)) {
      ASSERT_TRUE(tags.contains(tag.substr(0, tag.find(' ')))) << tag << " in run " << run;
      const std::string rest = tag == "table style=" ? "" : tag;
      for (const char* attribute : {" on", " src", " style", " srcset", " action"})
        ASSERT_EQ(rest.find(attribute), std::string::npos) << tag << " in run " << run;
    }
    for (const std::string& style : between(page, "<table style=\"", "\""))
      ASSERT_TRUE(std::regex_match(style, columns)) << style;
    for (const std::string& link : between(page, " href=\"", "\""))
      ASSERT_EQ(link.find_first_of(":\\"), std::string::npos) << link << " in run " << run;
  }
}

TEST(Accessibility, IdsAreUniqueAndEveryLinkInsideThePageLeadsSomewhere) {
  const std::string page = golden_page();
  const auto ids = between(page, " id=\"", "\"");
  const std::set<std::string> unique(ids.begin(), ids.end());
  EXPECT_EQ(unique.size(), ids.size());
  const auto links = between(page, "href=\"#", "\"");
  EXPECT_GT(links.size(), 20U);
  for (const std::string& link : links) EXPECT_TRUE(unique.contains(link)) << link;
}

TEST(Accessibility, HeadingsDescendOneByOneBelowASingleTitle) {
  std::vector<std::string> levels;
  for (const std::string& tag : tags_of(golden_page()))
    if (tag.size() > 1 && tag[0] == 'h' && tag[1] >= '1' && tag[1] <= '6')
      levels.push_back(tag.substr(1, 1));
  EXPECT_EQ(std::count(levels.begin(), levels.end(), "1"), 1);
  ASSERT_EQ(levels.front(), "1");
  for (size_t i = 1; i < levels.size(); ++i)
    EXPECT_LE(levels[i].front(), levels[i - 1].front() + 1) << "heading " << i;
}

TEST(Accessibility, EveryHeaderCellHasAScopeAndEveryTableALabel) {
  const std::string page = golden_page();
  EXPECT_GT(count(page, "<th scope=\"col\""), 0U);
  EXPECT_EQ(count(page, "<th>") + count(page, "<th "), count(page, "<th scope=\"col\""));
  EXPECT_EQ(count(page, "<table>") + count(page, "<table style="),
            count(page, "role=\"region\" aria-label=\"Table: "));
}

/// Relative luminance and contrast as WCAG 2.1 defines them.
double luminance(const std::string& colour) {
  double sum = 0;
  const double weights[] = {0.2126, 0.7152, 0.0722};
  for (size_t i = 0; i < 3; ++i) {
    const double c = std::stoi(colour.substr(1 + 2 * i, 2), nullptr, 16) / 255.0;
    sum += weights[i] * (c <= 0.03928 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4));
  }
  return sum;
}

double contrast(const std::string& a, const std::string& b) {
  const double x = luminance(a) + 0.05, y = luminance(b) + 0.05;
  return std::max(x, y) / std::min(x, y);
}

/// Colours of a name of the style on screens: light, then dark.
std::vector<std::string> colours_of(const std::string& name) {
  const std::string style(html::kStyle);
  return between(style.substr(0, style.find("@media print")), "--" + name + ": ", ";");
}

TEST(Accessibility, TextHasContrastOnBothGroundsLightAndDark) {
  const auto grounds = colours_of("ground");
  ASSERT_EQ(grounds.size(), 2U) << "light and dark";
  const auto bands = colours_of("band");
  for (const char* name : {"text", "soft", "link", "good", "bad", "open", "none"}) {
    const auto colours = colours_of(name);
    ASSERT_EQ(colours.size(), 2U) << name;
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_GE(contrast(colours[i], grounds[i]), 4.5) << name << i;
      EXPECT_GE(contrast(colours[i], bands[i]), 4.5) << name << i;
    }
  }
}

TEST(Accessibility, LinesOfPlotsHaveContrastOnBothGrounds) {
  const auto grounds = colours_of("ground");
  for (size_t i = 0; i < 6; ++i) {
    const auto colour = between(line_style(i), "\"", "\"").at(0);
    for (const std::string& ground : grounds) EXPECT_GE(contrast(colour, ground), 3) << colour;
  }
}

}  // namespace
}  // namespace reports
