#include "reports/html/page.h"

#include <gmock/gmock.h>

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
  EXPECT_LT(page.find("<h2 id=\"executive-summary\">"), page.find("id=\"contents\""));
  EXPECT_LT(page.find("id=\"contents\""), page.find("<h2 id=\"steps\">"));
  EXPECT_THAT(page, HasSubstr("<li><a href=\"#acceptance-criteria\">Acceptance criteria</a></li>"));
  EXPECT_THAT(page, HasSubstr("<span class=\"id\" id=\"M-p.x_count\">"));
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

}  // namespace
}  // namespace reports
