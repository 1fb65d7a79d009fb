// The trace of steps in a checkpoint: what was measured comes back, older versions have less of it.
#include "nsa/train/checkpoint/train_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "nsa/program/input_error.h"
#include "nsa/train/loop/trainer_testing.h"

namespace nsa::train {
namespace {

/// Drops the last columns, as versions before wrote it; negative: adds some.
void drop_columns(tensor_file::FileTensor& trace, int64_t columns) {
  const auto rows = trace.shape[0], width = trace.shape[1];
  const auto row_bytes = static_cast<size_t>(width) * sizeof(double),
             kept = static_cast<size_t>(width - columns) * sizeof(double);
  std::vector<std::byte> bytes(static_cast<size_t>(rows) * kept);
  for (size_t i = 0; i < static_cast<size_t>(rows); ++i)
    std::copy_n(trace.bytes.begin() + static_cast<std::ptrdiff_t>(i * row_bytes),
                std::min(row_bytes, kept), bytes.begin() + static_cast<std::ptrdiff_t>(i * kept));
  trace.shape[1] = width - columns;
  trace.bytes = std::move(bytes);
}

class TrainState : public ::testing::Test {
 protected:
  static constexpr int64_t kVocab = 16, kSteps = 3;

  TrainState() : tokens_(make_synthetic_source(kVocab, 3)) {
    const Rig rig = make_rig(small_options(kSteps), *tokens_, kVocab);
    trace_ = run_all(*rig.trainer, kSteps);
    for (StepRecord& record : trace_) record.schedule_steps = 7;
    trace_[1].validation_loss = 2.5, trace_[1].validation_accuracy = 0.25;
    trace_[2].validation_loss = std::numeric_limits<double>::quiet_NaN();
    checkpoint_ = take_checkpoint(*rig.trainer, trace_);
  }
  /// The trace that a new trainer goes on with, from a checkpoint without the last columns.
  std::vector<StepRecord> restored(int64_t without) const {
    Checkpoint checkpoint = checkpoint_;
    drop_columns(checkpoint.tensors.at("trace"), without);
    const Rig rig = make_rig(small_options(kSteps), *tokens_, kVocab);
    auto trace = restore_checkpoint(checkpoint, *rig.trainer);
    EXPECT_EQ(rig.trainer->steps_done(), kSteps);
    return trace;
  }

  std::unique_ptr<TokenSource> tokens_;
  std::vector<StepRecord> trace_;
  Checkpoint checkpoint_;
};

TEST_F(TrainState, LossesOfKeptOutRowsComeBackAndOnlyThey) {
  const auto back = restored(0);
  ASSERT_EQ(back.size(), trace_.size());
  EXPECT_FALSE(back[0].validation_loss || back[0].validation_accuracy);
  EXPECT_EQ(back[1].validation_loss, 2.5);
  EXPECT_EQ(back[1].validation_accuracy, 0.25);
  ASSERT_TRUE(back[2].validation_loss) << "NaN was measured";
  EXPECT_TRUE(std::isnan(*back[2].validation_loss));
  EXPECT_FALSE(back[2].validation_accuracy);
}

TEST_F(TrainState, OlderVersionsGoOnWithoutWhatTheyDidNotKeep) {
  for (const int64_t without : {2, 3, 4}) {
    const auto back = restored(without);
    ASSERT_EQ(back.size(), trace_.size());
    for (size_t i = 0; i < back.size(); ++i) {
      EXPECT_EQ(back[i].loss, trace_[i].loss);
      EXPECT_FALSE(back[i].validation_loss || back[i].validation_accuracy);
      EXPECT_EQ(back[i].schedule_steps, without == 2 ? 7 : 0);
      EXPECT_EQ(back[i].targets, without == 4 ? -1 : trace_[i].targets);
    }
  }
  for (const int64_t without : {5, -1}) EXPECT_THROW(restored(without), InputError);
}

}  // namespace
}  // namespace nsa::train
