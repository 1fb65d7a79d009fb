// Folders of sharded checkpoints: whole or absent, and every damage named.
#include "nsa/train/checkpoint/sharded_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "nsa/program/input_error.h"

namespace nsa::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const RunIdentity kTwelveRows = {
    {"batch x accum x ranks", "12"}, {"model", "small"}, {"seed", "1"}};

class ShardedCheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / ("nsa_sharded_test_" + std::to_string(getpid()));
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  static std::map<std::string, tensor_file::FileTensor> tensors(int64_t step) {
    return {{"parameter.w",
             {tensor_file::Dtype::kU8, {100}, std::vector<std::byte>(100, std::byte(step))}}};
  }
  /// All of a checkpoint but its manifest.
  ShardedManifest write_files(const fs::path& dir, int64_t step,
                              const RunIdentity& run = kTwelveRows) {
    const ShardHead head{step, run};
    const fs::path folder = begin_sharded_checkpoint(dir, step);
    ShardedManifest manifest{step, 2, run, write_shard(folder, kCommonFile, head, {}, {})};
    for (int64_t rank = 0; rank < 2; ++rank)
      manifest.shards.push_back(write_shard(folder, shard_file_name(rank, 2), head,
                                            tensors(step + rank), {{"w", {100 * rank, 100}}}));
    return manifest;
  }
  fs::path write(const fs::path& dir, int64_t step, const RunIdentity& run = kTwelveRows) {
    fs::create_directories(dir);
    finish_sharded_checkpoint(dir, write_files(dir, step, run));
    return sharded_checkpoint_path(dir, step);
  }
  /// The error of reading everything that a checkpoint lists.
  static std::string error_of(const fs::path& folder, const RunIdentity& run = kTwelveRows) {
    try {
      const ShardedManifest manifest = read_sharded_manifest(folder, run);
      read_shard(folder, manifest, manifest.common);
      for (const ShardFileRecord& shard : manifest.shards) read_shard(folder, manifest, shard);
    } catch (const InputError& error) {
      return error.what();
    }
    return "none";
  }
  static void replace(const fs::path& file, const fs::path& by) {
    fs::copy_file(by, file, fs::copy_options::overwrite_existing);
  }
  fs::path dir_;
};

TEST_F(ShardedCheckpointTest, ComesBackAsWritten) {
  const fs::path folder = write(dir_, 7);
  EXPECT_EQ(folder, dir_ / "step-00000007");
  const ShardedManifest manifest = read_sharded_manifest(folder, kTwelveRows);
  EXPECT_EQ(manifest.step, 7);
  ASSERT_EQ(manifest.shards.size(), 2u);
  EXPECT_EQ(manifest.shards[1].pieces.at("w").begin, 100);
  EXPECT_EQ(manifest.shards[1].pieces.at("w").size, 100);
  EXPECT_EQ(read_shard(folder, manifest, manifest.shards[1]).at("parameter.w").bytes,
            tensors(8).at("parameter.w").bytes);
  EXPECT_EQ(error_of(folder), "none");
}

TEST_F(ShardedCheckpointTest, IsAbsentUntilItsManifestIsWritten) {
  write(dir_, 3);
  write_files(dir_, 4);  // killed before the end
  EXPECT_THAT(checkpoint_steps(dir_), ElementsAre(3));
  EXPECT_TRUE(fs::exists(dir_ / "step-00000004.part"));
  const CheckpointStore store(dir_, kTwelveRows, 2);
  EXPECT_FALSE(fs::exists(dir_ / "step-00000004.part")) << "the next run removes it";
  write(dir_, 4);
  write(dir_, 5);
  store.remove_old();
  EXPECT_THAT(checkpoint_steps(dir_), ElementsAre(4, 5));
}

TEST_F(ShardedCheckpointTest, AnotherRunIsRefusedByName) {
  const fs::path folder = write(dir_, 7);
  RunIdentity other = kTwelveRows;
  other["model"] = "wide";
  EXPECT_THAT(
      error_of(folder, other),
      AllOf(HasSubstr("step-00000007 is of another run: model is small there and wide here"),
            HasSubstr("run with the options it was made with")));
  other = kTwelveRows;
  other["batch x accum x ranks"] = "10";
  EXPECT_THAT(error_of(folder, other), HasSubstr("batch x accum x ranks is 12 there and 10 here"));
}

TEST_F(ShardedCheckpointTest, RowsOfAStepStandForBatchAccumAndRanks) {
  const RunIdentity four = {{"batch", "3"}, {"accum", "2"}, {"ranks", "4"}, {"seed", "1"}};
  const RunIdentity one = {{"batch", "6"}, {"accum", "4"}, {"ranks", "1"}, {"seed", "1"}};
  EXPECT_EQ(identity_of_any_world(four), identity_of_any_world(one));
  EXPECT_EQ(identity_of_any_world(one).at("batch x accum x ranks"), "24");
}

TEST_F(ShardedCheckpointTest, DamageIsNamed) {
  const fs::path folder = write(dir_, 7), shard = folder / "rank-00001-of-00002.safetensors";
  const fs::path kept = dir_ / "kept";
  replace(kept, shard);
  fs::remove(shard);
  EXPECT_THAT(error_of(folder), AllOf(HasSubstr("rank-00001-of-00002.safetensors is missing"),
                                      HasSubstr("restore the file, or remove the folder"),
                                      HasSubstr("step-00000007")));
  replace(shard, kept);
  fs::resize_file(shard, 50);
  EXPECT_THAT(error_of(folder), HasSubstr("is damaged: it has 50 bytes, its manifest lists"));
  replace(shard, kept);
  std::fstream(shard, std::ios::in | std::ios::out | std::ios::binary).seekp(-3, std::ios::end)
      << 'x';
  EXPECT_THAT(error_of(folder), HasSubstr("is damaged: its sha256 is "));
  replace(shard, folder / "rank-00000-of-00002.safetensors");
  EXPECT_THAT(error_of(folder), HasSubstr("is rank-00000-of-00002.safetensors under another name"));
  replace(shard, write(dir_, 9) / shard.filename());
  EXPECT_THAT(error_of(folder), HasSubstr("was made behind step 9, the checkpoint behind step 7"));
  RunIdentity other = kTwelveRows;
  other["seed"] = "2";
  replace(shard, write(dir_ / "other", 7, other) / shard.filename());
  EXPECT_THAT(error_of(folder), HasSubstr("is of another run: seed is 2 there and 1 here"));
  replace(shard, kept);
  EXPECT_EQ(error_of(folder), "none");
}

TEST_F(ShardedCheckpointTest, ADamagedManifestIsNamed) {
  const fs::path folder = write(dir_, 7), path = folder / "manifest.json";
  std::ifstream in(path);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const auto error_with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    std::ofstream(path) << changed;
    return error_of(folder);
  };
  EXPECT_THAT(error_with("\"step\": 7", "\"step\": 8"), HasSubstr("was made behind step 8"));
  EXPECT_THAT(error_with("\"ranks\": 2", "\"ranks\": 3"), HasSubstr("lists 2 shards of 3 ranks"));
  EXPECT_THAT(error_with("\"step\": 7", "\"step\": 7.5"), HasSubstr("is damaged: "));
  EXPECT_THAT(error_with("[", "{"), HasSubstr("is damaged: "));
  EXPECT_THAT(error_with("checkpoint/1", "checkpoint/2"), HasSubstr("\"schema\" must be"));
  EXPECT_THAT(error_with("rank-00000", "../rank-00000"),
              HasSubstr("must be a name without folders"));
  fs::remove(path);
  EXPECT_THAT(error_of(folder), HasSubstr("manifest.json is missing"));
}

}  // namespace
}  // namespace nsa::train
