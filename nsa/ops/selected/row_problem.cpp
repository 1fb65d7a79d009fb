#include "nsa/ops/selected/row_problem.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace nsa {
namespace {

constexpr int64_t kCudaValues = int64_t{1} << 26;
constexpr int64_t kCpuValues = int64_t{1} << 18;  // stays in the cache

std::vector<int64_t> on_host(const at::Tensor& x) {
  const at::Tensor host = x.to(at::kCPU).contiguous();
  const int64_t* data = host.const_data_ptr<int64_t>();
  return {data, data + host.numel()};
}

}  // namespace

RowProblem::RowProblem(const SelAttnArgs& args)
    : heads(args.q, args.k),
      scale(args.scale),
      num_queries(args.q.size(1)),
      num_keys(args.k.size(1)),
      q(to_rows(args.q).to(heads.product_type)),
      k(heads.keys(args.k).flatten(0, 1)),
      v(heads.keys(args.v).flatten(0, 1)),
      tokens(row_tokens(args.ranges, args.first_position)),
      lengths(on_host(tokens.length)) {}

at::Tensor RowProblem::to_rows(const at::Tensor& x) const {
  return x.unflatten(2, {heads.num_kv_heads, heads.group_size})
      .transpose(1, 2)
      .reshape({heads.batch * heads.num_kv_heads * num_queries, heads.group_size, x.size(3)});
}

at::Tensor RowProblem::from_rows(const at::Tensor& x) const {
  return x.view({heads.batch, heads.num_kv_heads, num_queries, heads.group_size, x.size(2)})
      .transpose(1, 2)
      .flatten(2, 3)
      .contiguous();
}

at::Tensor RowProblem::key_index(const at::Tensor& rows, const at::Tensor& tokens_of_rows) const {
  return tokens_of_rows.add(rows.floor_divide(num_queries).mul_(num_keys));
}

int64_t row_budget(const RowProblem& problem) {
  return problem.q.is_cuda() ? kCudaValues : kCpuValues;
}

std::vector<int64_t> rows_with_tokens(const RowProblem& problem) {
  std::vector<int64_t> rows;
  rows.reserve(problem.lengths.size());
  for (size_t row = 0; row < problem.lengths.size(); ++row) {
    if (problem.lengths[row] > 0) rows.push_back(static_cast<int64_t>(row));
  }
  return rows;
}

std::vector<RowBatch> cut_batches(const RowProblem& problem, const std::vector<int64_t>& order,
                                  const std::function<bool(const BatchSize&)>& fits) {
  std::vector<RowBatch> batches;
  const at::Tensor all = at::tensor(order, at::kLong).to(problem.q.device());
  const auto count = static_cast<int64_t>(order.size());
  for (int64_t begin = 0; begin < count;) {
    const int64_t first = problem.lengths[order[begin]];
    BatchSize size{1, first, first, first};
    while (begin + size.rows < count) {
      const int64_t length = problem.lengths[order[begin + size.rows]];
      const BatchSize more{size.rows + 1, std::min(size.shortest, length),
                           std::max(size.longest, length), size.total + length};
      if (!fits(more)) break;
      size = more;
    }
    batches.push_back({all.narrow(0, begin, size.rows), size.longest, size.total});
    begin += size.rows;
  }
  return batches;
}

}  // namespace nsa
