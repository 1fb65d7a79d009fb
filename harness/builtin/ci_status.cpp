#include "harness/builtin/ci_status.h"

#include <pugixml.hpp>

namespace harness {
namespace {

void count(const pugi::xml_node& node, CiStatus& status) {
  for (const pugi::xml_node& child : node.children()) {
    const std::string_view name = child.name();
    if (name == "testsuite") count(child, status);
    if (name != "testcase") continue;
    ++status.tests;
    if (child.child("skipped")) ++status.skipped;
    if (!child.child("failure") && !child.child("error")) continue;
    if (++status.failed == 1)
      status.first_failed = std::string(child.attribute("classname").as_string()) + "." +
                            child.attribute("name").as_string();
  }
}

}  // namespace

CiStatus read_junit(std::string_view text) {
  CiStatus status;
  pugi::xml_document document;
  const pugi::xml_parse_result parsed = document.load_buffer(text.data(), text.size());
  if (!parsed) {
    status.problem = std::string("is no XML: ") + parsed.description() + " at byte " +
                     std::to_string(parsed.offset);
    return status;
  }
  const pugi::xml_node root = document.document_element();
  const std::string_view name = root.name();
  if (name == "testsuites" || name == "testsuite") {
    count(root, status);
    if (status.tests == 0) status.problem = "holds no test case";
  } else {
    status.problem = "is no JUnit file: its root is <" + std::string(name) + ">";
  }
  return status;
}

}  // namespace harness
