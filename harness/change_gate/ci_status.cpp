#include "harness/change_gate/ci_status.h"

#include <pugixml.hpp>

namespace harness {
namespace {

/// A suite that says more than its cases show was cut off, or failed outside of any case.
void compare_with_cases(const pugi::xml_node& suite, int64_t tests, int64_t failed,
                        CiStatus& status) {
  const auto said = [&](const char* name) { return int64_t{suite.attribute(name).as_llong()}; };
  const int64_t reported_failed = said("failures") + said("errors");
  if (said("tests") <= tests && reported_failed <= failed) return;
  status.problem = "contradicts itself: <" + std::string(suite.name()) + "> says " +
                   std::to_string(said("tests")) + " tests and " + std::to_string(reported_failed) +
                   " failed, its cases are " + std::to_string(tests) + " and " +
                   std::to_string(failed);
}

void count(const pugi::xml_node& node, CiStatus& status) {
  const CiStatus before = status;
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
  compare_with_cases(node, status.tests - before.tests, status.failed - before.failed, status);
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
    if (status.tests == 0)
      status.problem = "holds no test case";
    else if (status.tests == status.skipped)
      status.problem = "holds no test that ran";
  } else {
    status.problem = "is no JUnit file: its root is <" + std::string(name) + ">";
  }
  return status;
}

}  // namespace harness
