#include "harness/provenance/gpu/xid.h"

#include <sys/klog.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>
#include <system_error>

namespace harness {
namespace {

constexpr std::string_view kMark = "NVRM: Xid (PCI:";
constexpr int kReadAll = 3, kBufferSize = 10;  // of klogctl

std::optional<XidErrors> parse(std::string_view line) {
  const size_t mark = line.find(kMark);
  if (mark == std::string_view::npos) return {};
  line.remove_prefix(mark + kMark.size());
  const size_t close = line.find("): ");
  if (close == std::string_view::npos) return {};
  XidErrors one{.bus = std::string(line.substr(0, close)), .count = 1, .last = ""};
  line.remove_prefix(close + 3);
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), one.code);
  if (error != std::errc()) return {};
  line.remove_prefix(static_cast<size_t>(end - line.data()));
  const size_t text = line.find_first_not_of(", ");
  if (text != std::string_view::npos) one.last = line.substr(text);
  return one;
}

}  // namespace

std::vector<XidErrors> xid_errors(std::string_view kernel_log) {
  std::vector<XidErrors> all;
  while (!kernel_log.empty()) {
    const size_t end = std::min(kernel_log.find('\n'), kernel_log.size());
    if (auto one = parse(kernel_log.substr(0, end))) {
      const auto known = std::ranges::find_if(all, [&](const XidErrors& each) {
        return each.bus == one->bus && each.code == one->code;
      });
      if (known == all.end()) {
        all.push_back(std::move(*one));
      } else {
        ++known->count;
        known->last = std::move(one->last);
      }
    }
    kernel_log.remove_prefix(std::min(end + 1, kernel_log.size()));
  }
  return all;
}

KernelLog read_kernel_log() {
  KernelLog log;
  const int size = klogctl(kBufferSize, nullptr, 0);
  if (size > 0) log.text.resize(static_cast<size_t>(size));
  const int read = size < 0 ? size : klogctl(kReadAll, log.text.data(), size);
  if (read < 0) log.problem = std::generic_category().message(errno);
  log.text.resize(static_cast<size_t>(std::max(read, 0)));
  return log;
}

}  // namespace harness
