#include "suites/eval/evaluation.h"

namespace suites::eval {

bool Evaluation::wants_p_cmp() const {
  const int64_t values =
      layout.batch * layout.tokens * config.num_heads * config.num_compressed(layout.longest());
  return options.p_cmp || values <= kLargePCmp;
}

void Evaluation::need(std::initializer_list<const char*> keys) const {
  for (const char* key : keys) given.size(key);
}

int64_t Evaluation::size_or_any(const std::string& key) const {
  const auto found = given.sizes.find(key);
  return found == given.sizes.end() ? -1 : found->second;
}

Axes Evaluation::block_axes(const Axis& last) const {
  int64_t blocks = 0;
  for (size_t i = 0; i < layout.num_parts(); ++i) blocks += config.num_compressed(layout.length(i));
  Axes axes{{"N_c", blocks}, {"Hkv", config.num_kv_heads}, last};
  if (!layout.packed()) axes.insert(axes.begin(), {"B", layout.batch});
  return axes;
}

}  // namespace suites::eval
