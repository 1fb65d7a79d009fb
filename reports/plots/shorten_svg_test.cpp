#include "reports/plots/shorten_svg.h"

#include <sstream>

#include <gmock/gmock.h>

namespace reports {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string shortened(const std::string& inside) {
  pugi::xml_document document;
  EXPECT_TRUE(document.load_string(("<svg>" + inside + "</svg>").c_str()));
  shorten_svg(document.child("svg"));
  std::ostringstream out;
  document.child("svg").print(out, "", pugi::format_raw);
  return out.str();
}

/// What stands between the tags of the root.
std::string inner(const std::string& inside) {
  const std::string all = shortened(inside);
  const size_t from = all.find('>') + 1, to = all.rfind("</svg>");
  return to == std::string::npos ? "" : all.substr(from, to - from);
}

TEST(ShortenSvg, TheRootSaysWhatMostSay) {
  EXPECT_THAT(shortened("<path d='M0,0 L1,1'/>"),
              HasSubstr("<svg fill=\"none\" font-size=\"13\" stroke=\"currentColor\" "
                        "stroke-width=\"1\">"));
}

TEST(ShortenSvg, PointsCountFromTheOneBefore) {
  EXPECT_EQ(inner("<path d='M60.45,19.51 L60.45,240.60 L812.69,240.60 L65.10,40.60'/>"),
            "<path d=\"M60.5 19.5v221.1h752.2l-747.6-200\"/>");
  EXPECT_EQ(inner("<path d='M1.00,2.00 L1.50,2.50 L1.96,3.04 M4,4 L5,5'/>"),
            "<path d=\"M1 2l.5 .5 .5 .5M4 4l1 1\"/>");
}

// Each step counts from the rounded place, so that a long line does not drift.
TEST(ShortenSvg, RoundingDoesNotAddUp) {
  std::string path = "M0,0";
  for (int i = 1; i <= 1000; ++i) path += " L" + std::to_string(i * 0.44) + ",1";
  const std::string out = inner("<path d='" + path + "'/>");
  double x = 0;
  const size_t at = out.find("1h") + 2;
  EXPECT_THAT(out, HasSubstr("M0 0l.4 1h"));
  std::istringstream steps(out.substr(at));
  for (double step = 0; steps >> step;) x += step;
  EXPECT_NEAR(x + 0.4, 440, 0.05);
}

TEST(ShortenSvg, MovesThatDrawNothingAreLeftOut) {
  EXPECT_EQ(inner("<path d='M0,0 L0,9 M7,7 M8,8'/>"), "<path d=\"M0 0v9\"/>");
}

TEST(ShortenSvg, OtherPathsStayAsTheyAre) {
  for (const char* path : {"M0,0 C1,1 2,2 3,3", "M0,0 L1,1 z", "M0", "", "M1e400,0 L1,1"})
    EXPECT_EQ(inner("<path d='" + std::string(path) + "'/>"),
              "<path d=\"" + std::string(path) + "\"/>");
}

TEST(ShortenSvg, GroupsHandDownWhatTheySay) {
  EXPECT_EQ(inner("<g fill='none' stroke='currentColor' stroke-width='1.00'><g "
                  "transform='translate(51.35,296.33)' stroke='none' fill='currentColor' "
                  "font-size='13.00' text-anchor='end'><text> 1</text></g></g>"),
            "<text x=\"51.4\" y=\"296.3\" stroke=\"none\" fill=\"currentColor\" "
            "text-anchor=\"end\"> 1</text>");
  EXPECT_EQ(inner("<g stroke='red'><path d='M0,0 L1,0'/><path d='M0,1 L1,1' stroke='red'/></g>"),
            "<g stroke=\"red\"><path d=\"M0 0h1\"/><path d=\"M0 1h1\"/></g>");
  EXPECT_EQ(inner("<path d='M0,0 L1,0'/><path stroke='red' d='M5,0 L5,1'/><path d='M0,1 L1,1'/>"
                  "<path d='M0,1 L1,1 L2,2'/>"),
            "<path d=\"M0 0h1M0 1h1\"/><path stroke=\"red\" d=\"M5 0v1\"/>"
            "<path d=\"M0 1h1l1 1\"/>");
  EXPECT_EQ(inner("<text fill='red' transform='translate(1,2)'>a</text><path d='M0,0 L1,0'/>"
                  "<text fill='red' transform='translate(3,4) rotate(270)'>b</text>"),
            "<path d=\"M0 0h1\"/><g fill=\"red\"><text x=\"1\" y=\"2\">a</text>"
            "<text transform=\"translate(3,4) rotate(270)\">b</text></g>");
}

TEST(ShortenSvg, ThePlaceOfAGroupIsKept) {
  EXPECT_EQ(inner("<g transform='translate(1,2)'><path transform='translate(3,4)' d=''/></g>"),
            "<g transform=\"translate(1,2)\"><path transform=\"translate(3,4)\" d=\"\"/></g>");
}

TEST(ShortenSvg, WhatNothingCanSeeIsGone) {
  EXPECT_EQ(inner("<rect width='9' fill='none'/><use href='#a' transform='translate(1,1) "
                  "scale(0.00)'/><rect width='9' fill='none' stroke='red'/>"),
            "<rect width=\"9\" stroke=\"red\"/>");
}

TEST(ShortenSvg, ColoursAndScales) {
  EXPECT_EQ(inner("<use href='#a' transform='translate(1.25,3.00) scale(4.39)' "
                  "color='rgb( 47, 126, 216)'/>"),
            "<use href=\"#a\" transform=\"translate(1.25,3.00) scale(4.39)\" color=\"#2f7ed8\"/>");
  EXPECT_EQ(inner("<path stroke='rgb(300, 0, 0)' stroke-width='0.50' d=''/>"),
            "<path stroke=\"rgb(300, 0, 0)\" stroke-width=\".5\" d=\"\"/>");
}

TEST(ShortenSvg, MarksStayAsTheyAre) {
  const std::string marks = "<defs><path id=\"a\" stroke-width=\"0.222\" d=\"M-1,0 h2\"/></defs>";
  EXPECT_EQ(inner(marks), marks);
  EXPECT_THAT(inner("<defs/><text>x</text>"), Not(HasSubstr("defs")));
}

}  // namespace
}  // namespace reports
