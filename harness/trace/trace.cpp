#include "harness/trace/trace.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace harness::trace {
namespace {

struct KindRule {
  std::string_view part;
  CallKind kind;
};

/// The first rule whose text the name contains decides.
constexpr auto kRules = std::to_array<KindRule>({
    {"GraphLaunch", CallKind::kGraphLaunch},
    {"Launch", CallKind::kLaunch},
    {"StreamWaitEvent", CallKind::kWaitEvent},
    {"Synchronize", CallKind::kSync},
    {"Memcpy", CallKind::kCopy},
    {"Memset", CallKind::kSet},
    {"Malloc", CallKind::kMemory},
    {"MemAlloc", CallKind::kMemory},
    {"MemCreate", CallKind::kMemory},
    {"MemMap", CallKind::kMemory},
    {"Free", CallKind::kMemory},
});

/// Names that contain such a text but queue nothing.
constexpr auto kNotCalls = std::to_array<std::string_view>(
    {"GraphAdd", "GraphKernelNode", "GraphExec", "GraphMemcpy", "GraphMemset", "LaunchHostFunc",
     "GraphNode", "Attribute", "GetInfo", "PopCallConfiguration", "PushCallConfiguration"});

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// Leaves out a return type that is a template: "std::enable_if<!(false), void>::type name".
void drop_template_return(std::string& text) {
  if (!text.starts_with("std::enable_if<")) return;
  size_t at = text.find('<'), depth = 0;
  do {
    if (text[at] == '<') ++depth;
    if (text[at] == '>') --depth;
    ++at;
  } while (depth > 0 && at < text.size());
  const size_t space = text.find(' ', at);
  if (space != std::string::npos) text.erase(0, space + 1);
}

/// Position behind the text in front of which templates and parameters begin.
size_t name_end(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] == '<' || text[i] == '(') return i;
  return text.size();
}

}  // namespace

NameTable::NameTable(std::vector<std::string>& names) : names_(names) {
  for (size_t i = 0; i < names.size(); ++i) known_.emplace(names[i], static_cast<int64_t>(i));
}

int64_t NameTable::index(std::string_view text) {
  const auto found = known_.find(text);
  if (found != known_.end()) return found->second;
  const auto index = static_cast<int64_t>(names_.size());
  names_.emplace_back(text);
  known_.emplace(text, index);
  return index;
}

CallKind call_kind(std::string_view name) {
  for (const std::string_view part : kNotCalls)
    if (contains(name, part)) return CallKind::kOther;
  if (contains(name, "Memcpy") && !contains(name, "Async")) return CallKind::kSync;
  for (const KindRule& rule : kRules)
    if (contains(name, rule.part)) return rule.kind;
  return CallKind::kOther;
}

std::string_view to_string(CallKind kind) {
  static constexpr std::array<std::string_view, 8> kNames = {
      "launch", "graph_launch", "copy", "set", "sync", "wait_event", "memory", "other"};
  return kNames[static_cast<size_t>(kind)];
}

bool is_communication(std::string_view kernel) {
  std::string lower(kernel);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return contains(lower, "ncclkernel") || contains(lower, "nccldevkernel");
}

std::string short_name(std::string_view kernel) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)::";
  std::string text(kernel);
  for (size_t at; (at = text.find(kAnonymous)) != std::string::npos;)
    text.erase(at, kAnonymous.size());
  if (text.starts_with("void ")) text.erase(0, 5);
  drop_template_return(text);
  const size_t end = name_end(text);
  // A name that begins with a bracket has nothing in front of it worth keeping.
  return end == 0 ? text : text.substr(0, end);
}

}  // namespace harness::trace
