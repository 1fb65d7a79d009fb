#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/testing/paths.h"
#include "harness/cli/rendering/rendering.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/provenance/capture.h"
#include "reports/testing.h"

/// Pages in a headless browser: what they load, run and report on the console. Reported as skipped
/// where no Chromium is installed.
namespace harness::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// NSA_BROWSER, or the first Chromium in PATH; empty: none.
std::string browser() {
  if (const char* named = std::getenv("NSA_BROWSER")) return named;
  for (const char* name : {"chromium-headless-shell", "chrome-headless-shell", "chromium",
                           "chromium-browser", "google-chrome"})
    if (capture({name, "--version"}).ok()) return name;
  return "";
}

/// What a browser did with a page.
struct Visit {
  bool ended = false;
  std::string document;               ///< after loading
  std::vector<std::string> requests;  ///< everything that would leave the machine
  std::vector<std::string>
      console;          ///< messages: errors, refusals by the policy, output of scripts
  std::string picture;  ///< PNG
};

class BrowserTest : public testing::Test {
 protected:
  void SetUp() override {
    program_ = browser();
    if (program_.empty())
      GTEST_SKIP() << "no Chromium here; Debian: apt-get install chromium-headless-shell";
  }

  Visit visit(const fs::path& page) const {
    Visit visit;
    const Captured dom = call(page, {"--dump-dom"});
    visit.ended = dom.ok() && call(page, {"--screenshot=" + (dir_ / "page.png").string(),
                                          "--window-size=1280,1600"})
                                  .ok();
    for (size_t begin = 0; begin < dom.out.size();) {
      const size_t end = std::min(dom.out.find('\n', begin), dom.out.size());
      const std::string line = dom.out.substr(begin, end - begin);
      if (line.find(":CONSOLE:") != std::string::npos) visit.console.push_back(line);
      begin = end + 1;
    }
    visit.document = dom.out;
    visit.requests = requests();
    if (fs::exists(dir_ / "page.png")) visit.picture = read_bytes(dir_ / "page.png");
    return visit;
  }

  fs::path page(const std::string& text) const {
    write_bytes(dir_ / "page.html", text);
    return dir_ / "page.html";
  }

  /// Saved for who wants to look: NSA_SCREENSHOTS=FOLDER.
  static void save(const std::string& name, const std::string& picture) {
    if (const char* folder = std::getenv("NSA_SCREENSHOTS"))
      write_bytes(fs::path(folder) / (name + ".png"), picture);
  }

 private:
  Captured call(const fs::path& page, const std::vector<std::string>& what) const {
    std::vector<std::string> argv = {program_,
                                     "--headless",
                                     "--no-sandbox",
                                     "--disable-gpu",
                                     "--hide-scrollbars",
                                     "--no-first-run",
                                     "--disable-background-networking",
                                     "--disable-component-update",
                                     "--user-data-dir=" + (dir_ / "profile").string(),
                                     "--enable-logging=stderr",
                                     "--log-net-log=" + (dir_ / "net.json").string()};
    argv.insert(argv.end(), what.begin(), what.end());
    argv.push_back("file://" + fs::absolute(page).string());
    CaptureOptions options;
    options.timeout_s = 60;
    options.with_stderr = true;
    return capture(argv, options);
  }

  /// URLs of the network log that are no local files.
  std::vector<std::string> requests() const {
    std::vector<std::string> urls;
    const json log = json::parse(read_bytes(dir_ / "net.json"), nullptr, false);
    if (log.is_discarded()) return {"the network log cannot be read"};
    for (const json& event : log.at("events")) {
      const json url = event.value("/params/url"_json_pointer, json(""));
      const std::string text = url.is_string() ? url.get<std::string>() : "";
      if (text.starts_with("http") || text.starts_with("ws") || text.starts_with("ftp"))
        urls.push_back(text);
    }
    return urls;
  }

  TempDir dir_;
  std::string program_;
};

void expect_quiet(const Visit& visit) {
  EXPECT_TRUE(visit.ended);
  EXPECT_THAT(visit.requests, IsEmpty());
  EXPECT_THAT(visit.console, IsEmpty());
  EXPECT_THAT(visit.document, HasSubstr("<main id=\"report\">"));
  EXPECT_THAT(visit.document, Not(HasSubstr("<script")));
  EXPECT_TRUE(visit.picture.starts_with("\x89PNG"));
  EXPECT_GT(visit.picture.size(), 20'000U) << "an empty page";
}

TEST_F(BrowserTest, TheCheckItselfSeesRequestsScriptsAndComplaints) {
  const Visit bad = visit(page(
      "<!DOCTYPE html><title>x</title><img src=\"http://127.0.0.1:9/x.png\">"
      "<script>console.log('ran'); document.title = 'changed'; throw new Error('boom')</script>"));
  EXPECT_THAT(bad.requests, testing::Contains("http://127.0.0.1:9/x.png"));
  ASSERT_EQ(bad.console.size(), 2U);
  EXPECT_THAT(bad.console[0], HasSubstr("ran"));
  EXPECT_THAT(bad.console[1], HasSubstr("boom"));
  EXPECT_THAT(bad.document, HasSubstr("<title>changed</title>"));
}

TEST_F(BrowserTest, ThePolicyOfThePageStopsWhatWouldGetIn) {
  std::string text = draw_reports(reports::testing_data::go()).at("report.html");
  text.insert(text.find("</main>"),
              "<img src=\"http://127.0.0.1:9/x.png\"><script>document.title='changed'</script>");
  const Visit injected = visit(page(text));
  EXPECT_THAT(injected.requests, IsEmpty());
  EXPECT_EQ(injected.console.size(), 2U) << "both are refused, with a message each";
  EXPECT_THAT(injected.document, Not(HasSubstr("<title>changed</title>")));
}

TEST_F(BrowserTest, SamplesLoadNothingRunNothingAndComplainOfNothing) {
  size_t pages = 0;
  for (const auto& sample : fs::directory_iterator(base::source_dir() + "/reports/samples")) {
    const fs::path report = sample.path() / "report.html";
    if (!fs::exists(report)) continue;
    SCOPED_TRACE(report);
    const Visit seen = visit(report);
    expect_quiet(seen);
    save(sample.path().filename().string(), seen.picture);
    ++pages;
  }
  EXPECT_GT(pages, 0U) << "no sample has a page";
}

Results hostile_results() {
  const std::string hostile =
      "<script src=http://127.0.0.1:9/a.js></script><img src=http://127.0.0.1:9/x onerror=alert(1)>"
      "\"'>](http://127.0.0.1:9/) `</code>` {/Symbol a} \x1b[31m \xff \u202e "
      "![](http://127.0.0.1:9/)";
  Results r = reports::testing_data::go();
  r.run.id = r.run.runbook_title = r.run.runbook = hostile;
  r.verdict.weakest = r.verdict.scope = r.verdict.rule = hostile;
  r.environment = {{"git", {{"commit", hostile}}}, {hostile, hostile}};
  r.criteria[0].text = r.criteria[0].reason = hostile;
  r.metrics.push_back(reports::testing_data::comparison(hostile, hostile, 1.5));
  r.metrics.back().details["processes"] = {{{"process", hostile}, {"speedup", 1.5}},
                                           {{"process", hostile}, {"speedup", 1.6}}};
  r.tables = {{{"id", "p.ranges"},
               {"title", hostile},
               {"columns", {"range", "busy, ms"}},
               {"rows", json::array({json::array({hostile, 1.5}), json::array({hostile, 2.5})})}}};
  r.findings = {{"F-x", hostile, hostile, hostile, hostile, hostile, Priority::kImmediate}};
  r.series = {{.id = "S-" + hostile,
               .phase = hostile,
               .title = hostile,
               .kind = "steps",
               .x = hostile,
               .unit = hostile,
               .lines = {{{"name", hostile}, {"points", {{1, 1}, {2, 3}}}},
                         {{"name", hostile}, {"points", {{1, 2}, {2, 1}}}}},
               .limits = {{{"criterion", hostile}, {"op", hostile}, {"value", 2}}}}};
  return r;
}

TEST_F(BrowserTest, AHostileRunIsOnlyText) {
  const auto files = draw_reports(hostile_results());
  const Visit seen = visit(page(files.at("report.html")));
  expect_quiet(seen);
  EXPECT_THAT(seen.document, Not(HasSubstr("<img")));
  const size_t plots = capture({"gnuplot", "--version"}).ok() ? 4 : 0;
  EXPECT_EQ(files.size(), 1 + plots);
  save("hostile", seen.picture);
}

}  // namespace
}  // namespace harness::cli
