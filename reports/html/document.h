#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

/// From the Markdown of a report to the body of a web page. Raw HTML never passes: of it only what
/// the renderers themselves write (folded parts, <code>) is known and made anew; anything else is
/// dropped, as are links that lead out of the run folder.
namespace reports::html {

/// Drawings by the path that the Markdown names: plots/NAME.svg -> text of a cleaned SVG.
using Drawings = std::map<std::string, std::string, std::less<>>;

struct Heading {
  int level = 2;
  std::string anchor;  ///< unique in the page
  std::string text;    ///< escaped
};

struct Document {
  std::string body;
  std::vector<Heading> headings;
};

/// Ids (G- P- C- M- D- F-) become anchors where their section defines them and links elsewhere.
/// Throws std::runtime_error when memory runs out.
Document document(std::string_view markdown, const Drawings& drawings);

/// Text with & < > " ' as entities.
std::string escaped(std::string_view text);

}  // namespace reports::html
