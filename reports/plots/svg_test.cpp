#include "reports/plots/svg.h"

#include <gmock/gmock.h>

namespace reports {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string cleaned(const std::string& inside) {
  return clean_svg("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 8 4\" onload=\"x()\">" +
                       inside + "</svg>",
                   "loss", "Loss \"over\" <steps>");
}

TEST(Svg, KeepsWhatIsDrawn) {
  const std::string svg = cleaned(
      "<g fill='none'><path d='M0,0 L8,4' stroke='rgb( 47, 126, 216)'/><text>a &lt; b</text></g>");
  EXPECT_THAT(svg, AllOf(HasSubstr("viewBox=\"0 0 8 4\""), HasSubstr("d=\"M0 0l8 4\""),
                         HasSubstr("stroke=\"#2f7ed8\""), HasSubstr("a &lt; b")));
  EXPECT_THAT(svg, HasSubstr("role=\"img\" aria-label=\"Loss &quot;over&quot; &lt;steps"));
  EXPECT_THAT(svg, HasSubstr("color=\"#777\"")) << "black letters are lost on a dark page";
}

TEST(Svg, DropsScriptsStylesHandlersAndWhatIsElsewhere) {
  const std::string svg = cleaned(
      "<script>alert(1)</script><style>@import url(http://e)</style><g onclick='x()'><rect "
      "width='1'/></g>"
      "<image xlink:href='http://e/x.png'/><use xlink:href='http://e/x.svg#a'/><a "
      "href='javascript:x()'>"
      "<text>t</text></a><foreignObject><p>x</p></foreignObject><rect fill='url(http://e)' "
      "style='a:b'/>"
      "<animate attributeName='href'/><title>Gnuplot</title><set/>");
  EXPECT_THAT(svg, AllOf(HasSubstr("<rect width=\"1\""), HasSubstr("<use/>")));
  for (const char* gone : {"script", "style", "onclick", "onload", "image", "e/x", "javascript",
                           "foreign", "url", "animate", "Gnuplot", "<set", "<a "})
    EXPECT_THAT(svg, Not(HasSubstr(gone)));
}

TEST(Svg, IdsAndReferencesCarryTheNameOfThePlot) {
  EXPECT_THAT(
      cleaned("<defs><circle id='gpDot' r='1'/></defs><use xlink:href='#gpDot' color='red'/>"),
      AllOf(HasSubstr("id=\"loss-gpDot\""),
            HasSubstr("<use href=\"#loss-gpDot\" color=\"red\"/>")));
}

TEST(Svg, MarksThatNothingDrawsAreLeftOut) {
  const std::string svg = cleaned(
      "<g><defs><path id='a' d='M0'/><use id='b' xlink:href='#a'/><use id='c' xlink:href='#b'/>"
      "<circle id='d' r='1'/></defs></g><use xlink:href='#b'/>");
  EXPECT_THAT(svg, AllOf(HasSubstr("loss-a\""), HasSubstr("id=\"loss-b\"")));
  EXPECT_THAT(svg, AllOf(Not(HasSubstr("loss-c")), Not(HasSubstr("loss-d"))));
}

TEST(Svg, DefaultsAreNotRepeated) {
  const std::string svg = cleaned(
      "<g stroke-linecap='butt' stroke-linejoin='round' font-family='DejaVu Sans'>"
      "<path d='M0,0 L8,4  '/></g>");
  EXPECT_THAT(svg, HasSubstr("<path d=\"M0 0l8 4\" stroke-linejoin=\"round\"/>"));
  EXPECT_THAT(svg, HasSubstr("font-family=\"DejaVu Sans, sans-serif\""));
}

TEST(Svg, TextTakesTheColourOfThePage) {
  EXPECT_THAT(cleaned("<g stroke='none'><g color='black' stroke='rgb(  1,   2,   3)' "
                      "fill='rgb(1,2,3)'><path d='M0'/></g></g>"),
              HasSubstr("<path d=\"M0\" stroke=\"currentColor\" fill=\"currentColor\"/>"));
}

TEST(Svg, WhatIsNoSvgIsNothing) {
  EXPECT_EQ(clean_svg("", "x", "x"), "");
  EXPECT_EQ(clean_svg("<svg><g>", "x", "x"), "");
  EXPECT_EQ(clean_svg("<html><svg/></html>", "x", "x"), "");
}

TEST(Svg, EntitiesOfADoctypeAreNotExpanded) {
  const std::string svg = clean_svg(
      "<!DOCTYPE svg [<!ENTITY x SYSTEM \"file:///etc/passwd\">]><svg><text>&x;</text></svg>", "x",
      "x");
  EXPECT_THAT(svg, AllOf(HasSubstr("&amp;x;"), Not(HasSubstr("ENTITY"))));
}

}  // namespace
}  // namespace reports
