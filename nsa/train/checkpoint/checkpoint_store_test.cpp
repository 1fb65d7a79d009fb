// Files of checkpoints: whole or absent, and every damage named.
#include "nsa/train/checkpoint/checkpoint_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "nsa/program/input_error.h"

namespace nsa::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const RunIdentity kRun = {{"model", "small"}, {"seed", "1"}};

Checkpoint checkpoint(int64_t step, size_t bytes = 4000) {
  Checkpoint result{step, {}};
  result.tensors["parameter.w"] = {tensor_file::Dtype::kU8,
                                   {static_cast<int64_t>(bytes)},
                                   std::vector<std::byte>(bytes, std::byte(step))};
  return result;
}

class CheckpointStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / ("nsa_checkpoint_test_" + std::to_string(getpid()));
    fs::remove_all(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  std::string error_of_reading(const RunIdentity& run = kRun) {
    try {
      read_newest_checkpoint(dir_, run);
    } catch (const InputError& error) {
      return error.what();
    }
    return "none";
  }
  void change_byte(const fs::path& file, int64_t offset_from_end) {
    std::fstream io(file, std::ios::in | std::ios::out | std::ios::binary);
    io.seekg(-offset_from_end, std::ios::end);
    const auto byte = static_cast<char>(io.get());
    io.seekp(-offset_from_end, std::ios::end);
    io.put(static_cast<char>(byte ^ 1));
  }
  fs::path dir_;
};

TEST_F(CheckpointStoreTest, TheNewestComesBackAndTheLastOnesStay) {
  const CheckpointStore store(dir_, kRun, 2);
  EXPECT_FALSE(read_newest_checkpoint(dir_, kRun).has_value());
  for (const int64_t step : {5, 10, 100, 20}) store.save(checkpoint(step));
  EXPECT_THAT(checkpoint_steps(dir_), ElementsAre(20, 100));
  const auto newest = read_newest_checkpoint(dir_, kRun);
  ASSERT_TRUE(newest.has_value());
  EXPECT_EQ(newest->step, 100);
  EXPECT_EQ(newest->tensors.at("parameter.w").bytes, checkpoint(100).tensors["parameter.w"].bytes);
}

TEST_F(CheckpointStoreTest, DamageIsNamedWithItsRemedy) {
  const CheckpointStore store(dir_, kRun, 3);
  store.save(checkpoint(1));
  store.save(checkpoint(2));
  const fs::path file = checkpoint_path(dir_, 2);
  const std::string name = "checkpoint " + file.string() + " is damaged: ";
  const auto whole = fs::file_size(file);

  change_byte(file, 7);
  EXPECT_THAT(error_of_reading(),
              AllOf(HasSubstr(name + "its content does not have the sha256"),
                    HasSubstr("remove it to continue from step 1, or start anew")));
  change_byte(file, 7);
  EXPECT_EQ(error_of_reading(), "none");

  for (const uintmax_t size : {whole - 1, whole / 2, uintmax_t{20}, uintmax_t{3}, uintmax_t{0}}) {
    store.save(checkpoint(2));
    fs::resize_file(file, size);
    EXPECT_THAT(error_of_reading(), HasSubstr(name)) << size;
  }
  fs::copy_file(checkpoint_path(dir_, 1), file, fs::copy_options::overwrite_existing);
  EXPECT_THAT(error_of_reading(), HasSubstr(name + "it was made behind step 1"));
  fs::remove(checkpoint_path(dir_, 1));
  EXPECT_THAT(error_of_reading(), HasSubstr("there is none before it"));
}

/// Every single bit counts: the hash covers metadata, names, shapes and data.
TEST_F(CheckpointStoreTest, AnyChangedByteIsFound) {
  const CheckpointStore store(dir_, kRun, 3);
  store.save(checkpoint(1, 40));
  const fs::path file = checkpoint_path(dir_, 1);
  const auto size = static_cast<int64_t>(fs::file_size(file));
  for (int64_t i = 1; i <= size; ++i) {
    change_byte(file, i);
    EXPECT_NE(error_of_reading(), "none") << "byte " << size - i;
    change_byte(file, i);
  }
}

TEST_F(CheckpointStoreTest, ForeignRunsAreNamed) {
  const CheckpointStore store(dir_, kRun, 3);
  store.save(checkpoint(1));
  EXPECT_THAT(error_of_reading({{"model", "other"}, {"seed", "1"}}),
              HasSubstr("is of another run: model is small there and other here; run with"));
  EXPECT_THAT(error_of_reading({{"model", "small"}, {"seed", "1"}, {"ranks", "2"}}),
              HasSubstr("ranks is unknown there and 2 here"));
  EXPECT_THAT(error_of_reading({{"model", "small"}}), HasSubstr("seed is 1 there and unknown"));
}

TEST_F(CheckpointStoreTest, OneRunAFolder) {
  const CheckpointStore first(dir_, kRun, 3);
  try {
    const CheckpointStore second(dir_, kRun, 3);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("is in use by another run"));
  }
}

TEST_F(CheckpointStoreTest, LeftoversOfAKilledRunGo) {
  {
    const CheckpointStore store(dir_, kRun, 3);
  }
  std::ofstream(dir_ / "step-00000007.safetensors.part-123") << "half";
  std::ofstream(dir_ / "notes.txt") << "mine";
  const CheckpointStore store(dir_, kRun, 3);
  EXPECT_FALSE(fs::exists(dir_ / "step-00000007.safetensors.part-123"));
  EXPECT_TRUE(fs::exists(dir_ / "notes.txt"));
  EXPECT_TRUE(checkpoint_steps(dir_).empty());
}

TEST_F(CheckpointStoreTest, AFullDiskLeavesTheLastGoodOne) {
  const CheckpointStore store(dir_, kRun, 1);
  store.save(checkpoint(1));
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{2000, before.rlim_max};
  std::signal(SIGXFSZ, SIG_IGN);  // as on a full disk, the write fails
  setrlimit(RLIMIT_FSIZE, &small);
  std::string error_text;
  try {
    store.save(checkpoint(2));
  } catch (const InputError& error) {
    error_text = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_THAT(error_text, AllOf(HasSubstr("step-00000002.safetensors: cannot be written"),
                                HasSubstr("the one of step 1 is intact: make room")));
  EXPECT_THAT(checkpoint_steps(dir_), ElementsAre(1));
  EXPECT_EQ(error_of_reading(), "none");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator{}), 1);
}

TEST_F(CheckpointStoreTest, AFolderThatCannotBe) {
  std::ofstream(dir_.string()) << "a file";
  try {
    const CheckpointStore store(dir_ / "below", kRun, 3);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot be used: "));
  }
}

}  // namespace
}  // namespace nsa::train
