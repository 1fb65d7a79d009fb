#include "harness/process/last_stage.h"

#include "harness/evidence/storage/files.h"
#include "harness/schema/parse/nearest.h"

namespace harness {
namespace {

constexpr size_t kSlotBytes = 256, kMostBytes = 64 * kSlotBytes, kLongest = 600;

}  // namespace

std::string last_stage(const std::filesystem::path& record) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(record, error) ||
      std::filesystem::file_size(record, error) > kMostBytes || error)
    return "";
  const std::string bytes = read_bytes(record);
  std::string all;
  for (size_t at = 0; at < bytes.size(); at += kSlotBytes) {
    const std::string slot = bytes.substr(at, kSlotBytes);
    const std::string text = slot.substr(0, slot.find('\0'));
    if (!text.empty()) all += (all.empty() ? "" : "; ") + text;
  }
  return printable(all, kLongest);
}

}  // namespace harness
