#include "reports/html/page.h"

#include <algorithm>

#include "reports/escape.h"
#include "reports/html/style.h"
#include "reports/render.h"

namespace reports {
namespace {

/// Nothing may be loaded, run or sent; the only style is the page's own.
constexpr const char* kPolicy =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

std::string contents(const std::vector<html::Heading>& headings) {
  std::string out = "<nav aria-label=\"Contents\">\n<h2 id=\"contents\">Contents</h2>\n<ul>\n";
  for (const html::Heading& heading : headings)
    if (heading.level == 2)
      out += "<li><a href=\"#" + heading.anchor + "\">" + heading.text + "</a></li>\n";
  return out + "</ul>\n</nav>\n";
}

/// The body, with the table of contents before its first section: the answer comes first.
std::string with_contents(const html::Document& document) {
  const size_t at = std::min(document.body.find("<h2 "), document.body.size());
  return document.body.substr(0, at) + contents(document.headings) + document.body.substr(at);
}

}  // namespace

std::string render_report_html(const Model& model, const html::Drawings& drawings) {
  const harness::Results& r = model.results;
  const html::Document document = html::document(render_report_md(model), drawings);
  const std::string title = html::escaped(plain(r.verdict.word + ": " + r.run.id, 200));
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"" +
         std::string(kPolicy) +
         "\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta name=\"color-scheme\" content=\"light dark\">\n"
         "<meta name=\"referrer\" content=\"no-referrer\">\n<title>" +
         title + "</title>\n<style>\n" + std::string(html::kStyle) +
         "</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#report\">Skip to the report</a>\n" +
         "<main id=\"report\">\n" + with_contents(document) + "</main>\n</body>\n</html>\n";
}

}  // namespace reports
