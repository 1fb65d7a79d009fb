#include "harness/change_gate/test_edits.h"

#include <algorithm>
#include <regex>
#include <set>

namespace harness {
namespace {

using Names = std::set<std::string>;

const std::string kNone;

const std::string& text_of(const std::optional<std::string>& text) { return text ? *text : kNone; }

bool is_cmake(const std::string& path) {
  return path.ends_with("CMakeLists.txt") || path.ends_with(".cmake");
}

std::ptrdiff_t count(const std::string& text, const std::regex& what) {
  return std::distance(std::sregex_iterator(text.begin(), text.end(), what),
                       std::sregex_iterator());
}

/// "Suite.Name" of every test of a source, or the words of CMake that name one.
Names tests_in(const std::string& path, const std::string& text) {
  static const std::regex kTest(
      R"(\b(?:INSTANTIATE_|TYPED_)?TEST(?:_F|_P|_SUITE_P)?\s*\(\s*(\w+)\s*,\s*(\w+))");
  static const std::regex kWord(R"((\w+_test(?:\.cpp)?)\b)");
  Names names;
  const bool cmake = is_cmake(path);
  const std::regex& what = cmake ? kWord : kTest;
  for (std::sregex_iterator it(text.begin(), text.end(), what), end; it != end; ++it)
    names.insert(cmake ? it->str(1) : it->str(1) + "." + it->str(2));
  return names;
}

/// More of `what` than before.
void add_more(const std::string& name, const std::regex& what, const FileChange& change,
              std::vector<ThresholdEdit>& edits) {
  const auto before = count(text_of(change.before), what),
             after = count(text_of(change.after), what);
  if (after > before) edits.push_back({name, std::to_string(before), std::to_string(after)});
}

}  // namespace

std::map<std::string, std::vector<ThresholdEdit>> test_edits(
    const std::map<std::string, FileChange>& changes) {
  static const std::regex kOff(R"(\bGTEST_SKIP\b|\bDISABLED_)");
  static const std::regex kGpu(R"(\bLABELS\s+"?[^)\n]*\bgpu\b)");
  Names there;
  for (const auto& [path, change] : changes) there.merge(tests_in(path, text_of(change.after)));
  std::map<std::string, std::vector<ThresholdEdit>> found;
  for (const auto& [path, change] : changes) {
    std::vector<ThresholdEdit> edits;
    for (const std::string& name : tests_in(path, text_of(change.before)))
      if (!there.contains(name)) edits.push_back({"test " + name, "there", "gone"});
    add_more("tests that are skipped or disabled", kOff, change, edits);
    if (is_cmake(path)) add_more("tests that need a GPU", kGpu, change, edits);
    if (!edits.empty()) found[path] = std::move(edits);
  }
  return found;
}

}  // namespace harness
