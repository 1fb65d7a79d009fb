// Training on packed documents equals training on each alone.
#include "nsa/model/document_packing.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/paths.h"
#include "nsa/model/blocks/loss.h"
#include "nsa/model/decoder.h"

namespace nsa {
namespace {

using ::testing::HasSubstr;

ModelConfig tiny(const std::string& name) {
  return load_model_config(name, {std::filesystem::path(base::source_dir()) / "configs/models"});
}

TEST(DocumentStarts, RowsAndEndsBeginDocuments) {
  // Two rows of 5 tokens, 4 of them inputs; an end in front, in the middle, at the last input.
  const std::vector<uint8_t> tokens = {7, 0, 8, 9, 0, 0, 5, 6, 0, 4};
  const at::Tensor starts = document_starts(tokens, 5);
  EXPECT_TRUE(at::equal(starts, at::tensor({0, 2, 4, 5, 8}, at::kInt))) << starts;
  EXPECT_TRUE(starts.is_cpu());
}

TEST(PackedLoss, IgnoresTargetsOfOtherDocuments) {
  const at::Tensor logits = at::randn({1, 3, 4}, at::kDouble);
  const at::Tensor tokens = at::tensor({2, 0, 3, 1}, at::kLong).view({1, 4});
  const at::Tensor log_p = at::log_softmax(logits, -1);
  // Input 2 -> 0 counts, input 0 -> 3 does not, input 3 -> 1 counts.
  const double want = -(log_p[0][0][0] + log_p[0][2][1]).item<double>() / 2;
  EXPECT_NEAR(packed_next_token_loss(logits, tokens).item<double>(), want, 1e-12);
}

TEST(PackedLoss, WithoutTargetsIsZeroWithZeroGradients) {
  for (const auto& [rows, length] : {std::pair{1, 1}, {1, 7}, {3, 1}, {2, 5}})
    for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
      const at::Tensor logits =
          at::randn({rows, length, 4}, at::kDouble).to(type).requires_grad_(true);
      const at::Tensor tokens = at::zeros({rows, length + 1}, at::kLong);
      const at::Tensor loss = packed_next_token_loss(logits, tokens);
      EXPECT_EQ(loss.item<double>(), 0) << rows << " " << length;
      loss.backward();
      EXPECT_TRUE(logits.grad().eq(0).all().item<bool>()) << rows << " " << length;
    }
}

TEST(PackedLoss, ARowWithoutTargetsLeavesTheMeanOfTheOthers) {
  const at::Tensor logits = at::randn({3, 4, 5}, at::kDouble);
  at::Tensor tokens = at::randint(1, 5, {3, 5}, at::kLong);
  tokens[1].fill_(kDocumentEnd);
  const at::Tensor others = at::tensor({0, 2}, at::kLong);
  EXPECT_NEAR(packed_next_token_loss(logits, tokens).item<double>(),
              next_token_loss(logits.index_select(0, others), tokens.index_select(0, others))
                  .item<double>(),
              1e-12);
}

TEST(PackedLoss, CountsTheTargetsItsMeanIsOver) {
  const std::vector<uint8_t> rows = {7, 0, 8, 9, 0, 0, 5, 6, 0, 4, 0, 0, 0, 0, 3};
  EXPECT_EQ(count_targets(rows, 5), 3 + 2 + 0);
  EXPECT_EQ(count_targets(rows, 3), 1 + 1 + 2 + 1 + 0);
  EXPECT_EQ(count_targets({rows.data(), 2}, 2), 1);
  EXPECT_EQ(count_targets({rows.data() + 1, 2}, 2), 0);
}

/// Sums of token losses and their gradients over documents computed one by one.
struct Alone {
  double loss_sum = 0;
  int64_t targets = 0;
};

Alone add_documents(Decoder& model, const at::Tensor& tokens, const at::Tensor& starts,
                    int64_t counted) {
  const int64_t seq_len = tokens.size(1) - 1;
  Alone all;
  for (int64_t doc = 0; doc + 1 < starts.size(0); ++doc) {
    const int64_t begin = starts[doc].item<int64_t>(), end = starts[doc + 1].item<int64_t>();
    const at::Tensor row = tokens[begin / seq_len].narrow(0, begin % seq_len, end - begin + 1);
    const at::Tensor logits = model->forward(row.slice(0, 0, -1).unsqueeze(0)).logits;
    const at::Tensor in = row.slice(0, 0, -1);
    const at::Tensor losses =
        at::cross_entropy_loss(logits[0], row.slice(0, 1), {}, at::Reduction::None)
            .masked_fill(in.eq(kDocumentEnd), 0);
    (losses.sum() / static_cast<double>(counted)).backward();
    all.loss_sum += losses.sum().item<double>();
    all.targets += in.ne(kDocumentEnd).sum().item<int64_t>();
  }
  return all;
}

TEST(PackedDocuments, EqualSeparateOnes) {
  at::manual_seed(9);
  Decoder model(tiny("tiny_cpu"));
  model->to(at::kDouble);
  model->compute_type = at::kDouble;
  at::Tensor tokens = at::randint(1, 256, {2, 91}, at::kLong);
  for (const auto& [row, place] :
       {std::pair{0, 3}, {0, 4}, {0, 40}, {0, 89}, {1, 0}, {1, 61}, {1, 90}})
    tokens[row][place] = kDocumentEnd;
  const at::Tensor bytes = tokens.to(at::kByte).contiguous();
  const at::Tensor starts = document_starts(
      {bytes.const_data_ptr<uint8_t>(), static_cast<size_t>(bytes.numel())}, tokens.size(1));
  const int64_t counted = tokens.slice(1, 0, -1).ne(kDocumentEnd).sum().item<int64_t>();
  const Alone alone = add_documents(model, tokens, starts, counted);
  EXPECT_EQ(alone.targets, counted);
  std::vector<at::Tensor> want;
  for (const at::Tensor& p : model->parameters()) want.push_back(p.grad().clone());
  for (const bool checkpointing : {false, true}) {
    model->zero_grad();
    model->activation_checkpointing = checkpointing;
    const auto out = model->forward(tokens.slice(1, 0, -1), {}, within_documents(starts));
    const at::Tensor loss = packed_next_token_loss(out.logits, tokens);
    loss.backward();
    EXPECT_NEAR(loss.item<double>(), alone.loss_sum / static_cast<double>(counted), 1e-10);
    const auto parameters = model->named_parameters();
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(at::allclose(parameters[i].value().grad(), want[i], 1e-9, 1e-11))
          << parameters[i].key();
  }
}

TEST(PackedDocuments, NeedNsaLayers) {
  Decoder dense(tiny("tiny_cpu_dense"));
  const at::Tensor starts = at::tensor({0, 8}, at::kInt);
  try {
    dense->forward(at::zeros({1, 8}, at::kLong), {}, within_documents(starts));
    FAIL();
  } catch (const c10::Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("model must attend with NSA where its attention is replaced"));
  }
}

}  // namespace
}  // namespace nsa
