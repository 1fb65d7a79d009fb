#include "nsa/train/record/bucket_report.h"

#include <cstdio>

#include "nsa/train/memory/mib.h"

namespace nsa::train {
namespace {

std::string mib_text(double mib) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", mib);
  return text;
}

}  // namespace

Check check_buckets(const ReducerOptions& request, const RunFacts& facts) {
  const auto cap = static_cast<double>(request.bucket_mib);
  const double most = cap + static_cast<double>(facts.largest_parameter_bytes) / kMib;
  Check check{"bucket_cap", "BUCKET_MISMATCH", "", !facts.bucket_bytes.empty(), 0, cap};
  std::string list;
  const size_t count = facts.bucket_bytes.size();
  for (size_t i = 0; i < count; ++i) {
    const double mib = static_cast<double>(facts.bucket_bytes[i]) / kMib;
    const bool may_be_small = i == 0 || i + 1 == count;
    if (!((may_be_small || mib >= cap) && mib < most)) check.ok = false;
    check.error = std::max(check.error, mib);
    list += (i > 0 ? ", " : "") + mib_text(mib);
  }
  check.detail = "cap asked for: " + mib_text(cap) + " MiB; sent: " + std::to_string(count) +
                 " buckets of " + (list.empty() ? "nothing" : list) + " MiB";
  return check;
}

}  // namespace nsa::train
