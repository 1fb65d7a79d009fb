#include "reports/html/document.h"

#include <cmark-gfm-core-extensions.h>
#include <cmark-gfm.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "reports/html/cells.h"
#include "reports/html/ids.h"

namespace reports::html {
namespace {

constexpr int kOptions = CMARK_OPT_VALIDATE_UTF8;  // and not CMARK_OPT_UNSAFE

struct FreeNode {
  void operator()(cmark_node* node) const { cmark_node_free(node); }
};
struct FreeParser {
  void operator()(cmark_parser* parser) const { cmark_parser_free(parser); }
};
struct FreeIter {
  void operator()(cmark_iter* iter) const { cmark_iter_free(iter); }
};
using Node = std::unique_ptr<cmark_node, FreeNode>;
using Parser = std::unique_ptr<cmark_parser, FreeParser>;

std::string_view literal(cmark_node* node) {
  const char* text = cmark_node_get_literal(node);
  return text == nullptr ? std::string_view() : std::string_view(text);
}

bool is_type(cmark_node* node, std::string_view name) {
  return cmark_node_get_type_string(node) == name;
}

cmark_node* block(const std::string& enter, const std::string& exit = "") {
  cmark_node* node = cmark_node_new(CMARK_NODE_CUSTOM_BLOCK);
  cmark_node_set_on_enter(node, enter.c_str());
  cmark_node_set_on_exit(node, exit.c_str());
  return node;
}

/// Puts `by`, which takes over the children, where `node` was.
void replace(cmark_node* node, cmark_node* by) {
  if (cmark_node_get_type(by) == CMARK_NODE_CUSTOM_BLOCK)
    while (cmark_node_first_child(node) != nullptr)
      cmark_node_append_child(by, cmark_node_first_child(node));
  if (cmark_node_replace(node, by) == 0) throw std::logic_error("a node of Markdown cannot move");
  cmark_node_free(node);
}

/// Leaves the children where their parent was.
void unwrap(cmark_node* node) {
  while (cmark_node_first_child(node) != nullptr)
    cmark_node_insert_before(node, cmark_node_first_child(node));
  cmark_node_unlink(node);
  cmark_node_free(node);
}

/// Marks places of pieces of HTML inside of text, where cmark lets no HTML through: two characters
/// for private use, which the Markdown itself is cleaned of.
constexpr std::string_view kOpen = "\uE000", kClose = "\uE001";

std::string without_marks(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view here = text.substr(i, kOpen.size());
    if (here == kOpen || here == kClose)
      i += kOpen.size() - 1;
    else
      out += text[i];
  }
  return out;
}

/// Pieces of HTML that stand inside of text.
class Pieces {
 public:
  cmark_node* add(std::string html) {
    cmark_node* node = cmark_node_new(CMARK_NODE_TEXT);
    const std::string mark =
        std::string(kOpen) + std::to_string(pieces_.size()) + std::string(kClose);
    cmark_node_set_literal(node, mark.c_str());
    pieces_.push_back(std::move(html));
    return node;
  }
  std::string put_into(std::string_view text) const {
    std::string out;
    for (size_t at = text.find(kOpen); at != std::string_view::npos; at = text.find(kOpen)) {
      const size_t close = text.find(kClose, at);
      const std::string number(text.substr(at + kOpen.size(), close - at - kOpen.size()));
      out.append(text.substr(0, at)).append(pieces_.at(std::stoul(number)));
      text.remove_prefix(close + kClose.size());
    }
    return out.append(text);
  }

 private:
  std::vector<std::string> pieces_;
};

/// All text below a node.
std::string text_of(cmark_node* node) {
  std::string text;
  const std::unique_ptr<cmark_iter, FreeIter> iter(cmark_iter_new(node));
  for (cmark_event_type event = cmark_iter_next(iter.get()); event != CMARK_EVENT_DONE;
       event = cmark_iter_next(iter.get()))
    if (event == CMARK_EVENT_ENTER &&
        cmark_node_get_type(cmark_iter_get_node(iter.get())) != CMARK_NODE_HTML_INLINE)
      text += literal(cmark_iter_get_node(iter.get()));
  return text;
}

constexpr const char* kNotDrawn =
    "<p class=\"missing\">Not drawn: gnuplot was not found when this page was written. Its figures "
    "stand in the table below; <code>nsa-validate report DIR</code> draws it where gnuplot is "
    "installed.</p>";

/// The symbols of status_text, and the class of the mark that the page draws instead of them: the
/// fonts of a machine may lack the symbols.
constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kMarks = {{{"✅ ", "good"},
                                                                                  {"❌ ", "bad"},
                                                                                  {"🟡 ", "open"},
                                                                                  {"❓ ", "open"},
                                                                                  {"⏸ ", "open"},
                                                                                  {"⬜ ", "none"},
                                                                                  {"❔ ", "none"}}};

class Rewriter {
 public:
  explicit Rewriter(const Drawings& drawings) : drawings_(drawings) {}

  Document rewrite(cmark_node* root, cmark_llist* extensions) && {
    const std::vector<cmark_node*> nodes = in_order(root);
    for (cmark_node* node : nodes) define(node);
    section_ = '\0';
    for (cmark_node* node : nodes) visit(node);
    const std::unique_ptr<char, decltype(&std::free)> text(
        cmark_render_html(root, kOptions, extensions), &std::free);
    document_.body = pieces_.put_into(with_meaning(text.get()));
    return std::move(document_);
  }

 private:
  /// Nodes with text, children before what may replace them.
  static std::vector<cmark_node*> in_order(cmark_node* root) {
    std::vector<cmark_node*> nodes;
    const std::unique_ptr<cmark_iter, FreeIter> iter(cmark_iter_new(root));
    for (cmark_event_type event = cmark_iter_next(iter.get()); event != CMARK_EVENT_DONE;
         event = cmark_iter_next(iter.get())) {
      cmark_node* node = cmark_iter_get_node(iter.get());
      const bool leaf = cmark_node_first_child(node) == nullptr;
      // Headings when entered, since they name the section that follows; others when left.
      const bool heading = cmark_node_get_type(node) == CMARK_NODE_HEADING;
      const bool due = heading ? event == CMARK_EVENT_ENTER : (leaf || event == CMARK_EVENT_EXIT);
      if (due && (nodes.empty() || nodes.back() != node)) nodes.push_back(node);
    }
    return nodes;
  }

  void enter_section(cmark_node* heading) {
    if (cmark_node_get_heading_level(heading) <= 2) section_ = defined_by(text_of(heading));
  }

  bool defines(std::string_view id) const { return is_id(id) && id[0] == section_; }

  /// First pass: which ids have a place of their own. Asking for a literal also makes the node its
  /// owner; until then it lies in the block above, which may be replaced.
  void define(cmark_node* node) {
    literal(node);
    const cmark_node_type type = cmark_node_get_type(node);
    if (type == CMARK_NODE_HEADING) enter_section(node);
    if (type == CMARK_NODE_CODE && defines(literal(node)))
      defined_.insert(std::string(literal(node)));
  }

  void visit(cmark_node* node) {
    switch (cmark_node_get_type(node)) {
      case CMARK_NODE_HTML_BLOCK:
        return html_block(node);
      case CMARK_NODE_HTML_INLINE:
        return html_inline(node);
      case CMARK_NODE_HEADING:
        return heading(node);
      case CMARK_NODE_CODE:
        return code(node);
      case CMARK_NODE_LINK:
        return link(node);
      case CMARK_NODE_IMAGE:
        return image(node);
      case CMARK_NODE_PARAGRAPH:
        return paragraph(node);
      case CMARK_NODE_TEXT:
        return mark(node);
      default:
        if (is_type(node, "table")) wrap_table(node);
    }
  }

  /// Folded parts are the only blocks of HTML that the renderers write.
  static void html_block(cmark_node* node) {
    constexpr std::string_view open = "<details><summary>", close = "</summary>";
    std::string_view text = literal(node);
    while (text.ends_with('\n')) text.remove_suffix(1);
    if (text == "</details>") return replace(node, block("</details>\n"));
    if (!text.starts_with(open) || !text.ends_with(close) ||
        text.size() < open.size() + close.size())
      return;
    const std::string_view summary =
        text.substr(open.size(), text.size() - open.size() - close.size());
    if (summary.find_first_of("<>\"") != std::string_view::npos) return;
    replace(node, block(std::string(text) + "\n"));
  }

  void html_inline(cmark_node* node) {
    const std::string text(literal(node));
    if (text == "<code>" || text == "</code>") replace(node, pieces_.add(text));
  }

  void heading(cmark_node* node) {
    enter_section(node);
    const int level = cmark_node_get_heading_level(node);
    const std::string text = text_of(node);
    const std::string anchor = anchors_.take(slug(text));
    document_.headings.push_back({level, anchor, escaped(text)});
    const std::string tag = "h" + std::to_string(level);
    replace(node, block("<" + tag + " id=\"" + anchor + "\">", "</" + tag + ">\n"));
  }

  static std::string slug(const std::string& text) {
    std::string out;
    for (const char c : text) {
      const bool letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
      if (letter || (c >= 'A' && c <= 'Z'))
        out += letter ? c : static_cast<char>(c - 'A' + 'a');
      else if (!out.empty() && out.back() != '-')
        out += '-';
    }
    while (out.ends_with('-')) out.pop_back();
    return out.substr(0, 60);
  }

  void code(cmark_node* node) {
    const std::string id(literal(node));
    if (!is_id(id) || !defined_.contains(id)) return;
    const std::string anchor = anchor_of(id);
    const bool here = defines(id) && !anchors_.has(anchor);
    if (here) anchors_.take(id);
    const std::string shown = ">" + escaped(id) + "</code>";
    replace(node, pieces_.add(here ? "<code id=\"" + anchor + "\"" + shown
                                   : "<a href=\"#" + anchor + "\"><code" + shown + "</a>"));
  }

  /// Links lead to files of the run folder, or nowhere.
  static void link(cmark_node* node) {
    const std::string_view url = cmark_node_get_url(node);
    if (url.empty() || url.find(':') != std::string::npos || url.front() == '/' ||
        url.front() == '\\' || url.find("..") != std::string::npos)
      unwrap(node);
  }

  static bool is_plot(cmark_node* node) {
    return cmark_node_get_type(node) == CMARK_NODE_IMAGE &&
           std::string_view(cmark_node_get_url(node)).starts_with("plots/") &&
           cmark_node_get_type(cmark_node_parent(node)) == CMARK_NODE_PARAGRAPH &&
           cmark_node_next(node) == nullptr && cmark_node_previous(node) == nullptr;
  }

  /// A picture that is no plot is only its text.
  void image(cmark_node* node) {
    if (!is_plot(node)) replace(node, pieces_.add(escaped(text_of(node))));
  }

  /// A plot stands alone in its paragraph.
  void paragraph(cmark_node* node) {
    cmark_node* image = cmark_node_first_child(node);
    if (image == nullptr || !is_plot(image)) return;
    const auto drawing = drawings_.find(cmark_node_get_url(image));
    const std::string inside = drawing == drawings_.end() ? kNotDrawn : drawing->second;
    const std::string caption = "<figcaption>" + escaped(text_of(image)) + "</figcaption>";
    cmark_node_unlink(image);
    cmark_node_free(image);
    replace(node, block("<figure>" + inside + caption + "</figure>\n"));
  }

  /// "✅ PASS" -> a mark that is drawn, and the word.
  void mark(cmark_node* node) {
    const std::string_view text = literal(node);
    for (const auto& [symbol, look] : kMarks) {
      if (!text.starts_with(symbol)) continue;
      const std::string_view words = text.substr(symbol.size());
      const size_t end = std::min(words.find(": "), words.size());
      return replace(node, pieces_.add("<span class=\"status " + std::string(look) + "\">" +
                                       escaped(words.substr(0, end)) + "</span>" +
                                       escaped(words.substr(end))));
    }
  }

  /// Wide tables scroll by themselves, also by keyboard.
  void wrap_table(cmark_node* table) {
    const std::string label = document_.headings.empty() ? "table" : document_.headings.back().text;
    cmark_node* box =
        block("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table: " + label +
                  "\">\n",
              "</div>\n");
    cmark_node_insert_before(table, box);
    cmark_node_unlink(table);
    cmark_node_append_child(box, table);
  }

  const Drawings& drawings_;
  std::set<std::string> defined_;
  Anchors anchors_;
  Document document_;
  Pieces pieces_;
  char section_ = '\0';
};

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  return out;
}

Document document(std::string_view markdown, const Drawings& drawings) {
  cmark_gfm_core_extensions_ensure_registered();
  const Parser parser(cmark_parser_new(kOptions));
  cmark_syntax_extension* tables = cmark_find_syntax_extension("table");
  if (parser == nullptr || tables == nullptr) throw std::runtime_error("cmark-gfm lacks tables");
  cmark_parser_attach_syntax_extension(parser.get(), tables);
  const std::string text = without_marks(markdown);
  cmark_parser_feed(parser.get(), text.data(), text.size());
  const Node root(cmark_parser_finish(parser.get()));
  return Rewriter(drawings).rewrite(root.get(), cmark_parser_get_syntax_extensions(parser.get()));
}

}  // namespace reports::html
