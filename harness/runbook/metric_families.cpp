#include "harness/runbook/metric_families.h"

#include <utility>

namespace harness {
namespace {

std::string replaced(std::string text, const std::string& list, const std::string& word) {
  const std::string pattern = "{" + list + "}";
  for (size_t at = text.find(pattern); at != std::string::npos; at = text.find(pattern, at))
    text.replace(at, pattern.size(), word), at += word.size();
  return text;
}

std::vector<std::string> replaced(std::vector<std::string> texts, const std::string& list,
                                  const std::string& word) {
  for (std::string& text : texts) text = replaced(std::move(text), list, word);
  return texts;
}

MetricSpec replaced(MetricSpec metric, const std::string& list, const std::string& word) {
  for (std::string* text : {&metric.name, &metric.source, &metric.doc})
    *text = replaced(std::move(*text), list, word);
  metric.arms = replaced(std::move(metric.arms), list, word);
  return metric;
}

template <class T>
std::vector<T> one_a_word(const T& pattern, const std::string& list, const WordLists& lists) {
  if (list.empty()) return {pattern};
  std::vector<T> family;
  for (const std::string& word : lists.at(list)) family.push_back(replaced(pattern, list, word));
  return family;
}

}  // namespace

std::string list_named_in(const std::string& text) {
  const size_t open = text.find('{');
  const size_t close = text.find('}', open);
  return close == std::string::npos ? "" : text.substr(open + 1, close - open - 1);
}

std::vector<MetricSpec> expand(const MetricSpec& metric, const WordLists& lists) {
  return one_a_word(metric, list_named_in(metric.name), lists);
}

std::vector<std::vector<std::string>> expand(const std::vector<std::string>& row,
                                             const WordLists& lists) {
  std::string list;
  for (const std::string& cell : row)
    if (list.empty()) list = list_named_in(cell);
  return one_a_word(row, list, lists);
}

KindSpec expand(KindSpec kind) {
  std::vector<MetricSpec> metrics;
  for (const MetricSpec& pattern : kind.metrics)
    for (MetricSpec& metric : expand(pattern, kind.lists)) metrics.push_back(std::move(metric));
  kind.metrics = std::move(metrics);
  for (KindTable& table : kind.tables) {
    std::vector<std::vector<std::string>> rows;
    for (const auto& pattern : table.rows)
      for (auto& row : expand(pattern, kind.lists)) rows.push_back(std::move(row));
    table.rows = std::move(rows);
  }
  std::map<std::string, std::string> settings;
  for (const auto& [arm, setting] : kind.settings) {
    const std::string list = list_named_in(arm);
    if (list.empty()) settings[arm] = setting;
    for (const std::string& word : list.empty() ? std::vector<std::string>{} : kind.lists.at(list))
      settings[replaced(arm, list, word)] = replaced(setting, list, word);
  }
  kind.settings = std::move(settings);
  kind.lists.clear();
  return kind;
}

}  // namespace harness
