#include "nsa/switches/switches.h"

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "base/text/nearest.h"

extern char** environ;

namespace nsa {
namespace {

constexpr std::string_view kPrefix = "NSA_";

const SwitchInfo* find_switch(std::string_view name) {
  for (const SwitchInfo& info : switch_registry()) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

std::string closest_switch(std::string_view name) {
  std::vector<std::string> known;
  for (const SwitchInfo& info : switch_registry()) known.push_back(info.name);
  return base::closest_name(name, known);
}

bool parse_int(const std::string& text, int64_t& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc{} && stop == end;
}

/// Empty when `value` fits the type, else what it must be.
std::string broken_rule(const SwitchInfo& info, const std::string& value) {
  int64_t number = 0;
  switch (info.type) {
    case SwitchType::kBool:
      return value == "0" || value == "1" ? "" : "0 or 1";
    case SwitchType::kInt:
      return parse_int(value, number) && number >= info.minimum
                 ? ""
                 : "an integer of at least " + std::to_string(info.minimum);
    case SwitchType::kChoice: {
      const bool listed = !value.empty() && value.find('|') == std::string::npos &&
                          ("|" + info.choices + "|").find("|" + value + "|") != std::string::npos;
      return listed ? "" : "one of " + info.choices;
    }
    case SwitchType::kText:
      return "";
  }
  throw std::logic_error("switch type without a rule: " + info.name);
}

void check_value(const SwitchInfo& info, const std::string& value, SwitchOrigin origin) {
  const std::string rule = broken_rule(info, value);
  if (!rule.empty()) {
    throw std::invalid_argument(info.name + " must be " + rule + ", got '" + value + "' (" +
                                to_string(origin) + ")");
  }
}

SwitchSet::Values read_environment() {
  SwitchSet::Values values;
  for (char** line = environ; line != nullptr && *line != nullptr; ++line) {
    const std::string_view text = *line;
    const size_t equals = text.find('=');
    if (text.substr(0, kPrefix.size()) == kPrefix && equals != std::string_view::npos) {
      values.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return values;
}

}  // namespace

std::string to_string(SwitchOrigin origin) {
  switch (origin) {
    case SwitchOrigin::kDefault:
      return "default";
    case SwitchOrigin::kConfig:
      return "config";
    case SwitchOrigin::kEnvironment:
      return "environment";
    case SwitchOrigin::kCommandLine:
      return "command line";
  }
  throw std::logic_error("origin without a name");
}

SwitchSet::SwitchSet() {
  for (const SwitchInfo& info : switch_registry()) {
    entries_[info.name] = {info.default_value, SwitchOrigin::kDefault};
  }
}

SwitchSet SwitchSet::from_environment(const Values& config, const Values& command_line) {
  return from(config, read_environment(), command_line);
}

SwitchSet SwitchSet::from(const Values& config, const Values& environment,
                          const Values& command_line) {
  SwitchSet set;
  set.merge(config, SwitchOrigin::kConfig);
  set.merge(environment, SwitchOrigin::kEnvironment);
  set.merge(command_line, SwitchOrigin::kCommandLine);
  set.check_backends();
  return set;
}

void SwitchSet::merge(const Values& values, SwitchOrigin origin) {
  for (const auto& [name, value] : values) {
    const bool foreign = name.substr(0, kPrefix.size()) != kPrefix;
    if (foreign && origin == SwitchOrigin::kEnvironment) continue;
    const SwitchInfo* info = find_switch(name);
    if (info == nullptr) {
      throw std::invalid_argument("unknown switch " + name + "=" + value + " (" +
                                  to_string(origin) + "); the nearest known name is " +
                                  closest_switch(name));
    }
    check_value(*info, value, origin);
    entries_[name] = {value, origin};
  }
}

void SwitchSet::check_backends() const {
  std::string chosen;
  int count = 0;
  for (const SwitchInfo& info : switch_registry()) {
    if (!info.selects_backend || entries_.at(info.name).value != "1") continue;
    chosen += (count++ == 0 ? "" : ", ") + info.name;
  }
  if (count > 1) {
    throw std::invalid_argument("more than one selection backend is set: " + chosen +
                                "; set at most one");
  }
}

const SwitchSet::Entry& SwitchSet::entry(std::string_view name, SwitchType type) const {
  const SwitchInfo* info = find_switch(name);
  if (info == nullptr) throw std::logic_error("no such switch: " + std::string(name));
  if (info->type != type) throw std::logic_error("switch read with another type: " + info->name);
  return entries_.find(name)->second;
}

bool SwitchSet::get_bool(std::string_view name) const {
  return entry(name, SwitchType::kBool).value == "1";
}

int64_t SwitchSet::get_int(std::string_view name, int64_t fallback) const {
  int64_t value = fallback;
  parse_int(entry(name, SwitchType::kInt).value, value);
  return value;
}

std::string SwitchSet::get_text(std::string_view name) const {
  const SwitchInfo* info = find_switch(name);
  const bool is_choice = info != nullptr && info->type == SwitchType::kChoice;
  return entry(name, is_choice ? SwitchType::kChoice : SwitchType::kText).value;
}

bool SwitchSet::is_default(std::string_view name) const {
  const SwitchInfo* info = find_switch(name);
  if (info == nullptr) throw std::logic_error("no such switch: " + std::string(name));
  return entries_.find(name)->second.value == info->default_value;
}

void SwitchSet::require_honoured(std::string_view path,
                                 std::initializer_list<std::string_view> honoured) const {
  for (const SwitchInfo& info : switch_registry()) {
    const bool known = std::find(honoured.begin(), honoured.end(), info.name) != honoured.end();
    if (known || is_default(info.name)) continue;
    const Entry& ignored = entries_.at(info.name);
    throw std::invalid_argument(info.name + "=" + ignored.value + " (" + to_string(ignored.origin) +
                                ") is ignored by " + std::string(path) +
                                "; unset it or choose another path");
  }
}

std::vector<SwitchValue> SwitchSet::list() const {
  std::vector<SwitchValue> values;
  for (const SwitchInfo& info : switch_registry()) {
    const Entry& found = entries_.at(info.name);
    values.push_back({info.name, found.value, to_string(found.origin)});
  }
  return values;
}

}  // namespace nsa
