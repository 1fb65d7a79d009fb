#include "nsa/ops/cpu/task_queue.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>

#include <algorithm>

namespace nsa::cpu {

void call_on_threads(int64_t count, c10::function_ref<void()> work) {
  const int64_t threads = std::min<int64_t>(count, at::get_num_threads());
  if (threads < 1) return;
  if (threads == 1) return work();
  // at::parallel_for is a template that runs on one thread in code compiled without the library's
  // OpenMP; an iterator over one element a thread enters it inside of the library.
  at::Tensor elements = at::empty({threads}, at::kChar);
  at::TensorIterator iterator = at::TensorIterator::nullary_op(elements);
  iterator.for_each([&](char**, const int64_t*, int64_t, int64_t) { work(); }, /*grain_size=*/1);
}

}  // namespace nsa::cpu
