// What a trainer measures without training.
#include <ATen/ATen.h>

#include "nsa/diagnostics/nvtx_range.h"
#include "nsa/model/document_packing.h"
#include "nsa/train/loop/trainer.h"

namespace nsa::train {
namespace {

/// Targets [B, S] whose token is the most likely one; the first of equal ones is. `ignored`: bool
/// [B, S].
double count_right(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& ignored) {
  at::Tensor right = logits.argmax(-1).eq(targets);
  if (ignored.defined()) right = right.logical_and(ignored.logical_not());
  return right.sum().item<double>();
}

}  // namespace

Evaluation Trainer::evaluate(const TokenSource& rows, int64_t batches) {
  const at::NoGradGuard no_grad;
  const NvtxRange range("train.validate");
  TORCH_CHECK((rows.answers_per_row() > 0) == (answers_ > 0),
              "nsa::Trainer: rows to evaluate must have answers where those of training have");
  const BatchShape shape{
      .rows = options_.batch, .row_tokens = row_bytes(), .stride = options_.batch, .offset = 0};
  BatchLoader loader(rows, shape, {.threads = 0, .warmup_batches = 0}, 0);
  double sum = 0, right = 0, targets = 0;
  for (int64_t i = 0; i < batches; ++i) {
    const Batch batch = to_device(loader.next());
    const int64_t of_row = answers_ > 0 ? rows.answers_per_row() : seq_len_;
    const auto here =
        static_cast<double>(options_.packing ? batch.targets : options_.batch * of_row);
    if (here == 0 && parts_.context == nullptr) continue;  // ranks of a row go together
    const auto out = parts_.model->forward(inputs_of(batch), /*probe=*/{}, batch.attention);
    sum += loss_of(batch, out.logits).to(at::kDouble).item<double>() * here;
    const at::Tensor& wanted = answers_ > 0 ? batch.answers : batch.tokens;
    at::Tensor ignored;
    if (answers_ > 0) ignored = wanted.slice(1, 1).eq(0);
    if (options_.packing) ignored = inputs_of(batch).eq(kDocumentEnd);
    right += count_right(
        out.logits, parts_.context ? parts_.context->targets(wanted) : wanted.slice(1, 1), ignored);
    targets += here;
  }
  if (parts_.context != nullptr) {  // each rank has the mean over its part of the same rows
    const at::Tensor all = at::tensor({sum, right, targets}, at::kDouble).to(device_);
    parts_.collectives->begin("allreduce of the loss of kept-out rows");
    parts_.ranks->sum(all);
    // Without packing each rank counts the targets of whole rows.
    const auto groups = static_cast<double>(num_row_groups());
    const double part = options_.packing ? groups : static_cast<double>(world());
    sum = all[0].item<double>() / part;
    right = all[1].item<double>() / groups;
    targets = all[2].item<double>() / part;
  }
  return {sum / targets, right / targets};
}

}  // namespace nsa::train
