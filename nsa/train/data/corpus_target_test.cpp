// The folder of a corpus: the old one stands until the new one is whole, one writer at a time,
// nothing of anybody else is touched.
#include "nsa/train/data/corpus_target.h"

#include "nsa/train/data/corpus_testing.h"

namespace nsa::train {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

class CorpusTargetTest : public CorpusFolderTest {};

TEST_F(CorpusTargetTest, OldCorpusIsKeptWhenTheNewOneFails) {
  make({write("old.txt", "the old corpus, of several shards")});
  const auto before = files();
  const fs::path good = write("good.txt", "another text of more than one shard");
  const std::vector<std::vector<fs::path>> bad = {
      {good, write("bad.jsonl", "{\"text\":\"ok\"}\n{\"text\": bad}\n")},
      {good, dir_ / "missing.txt"},
      {good, write("field.jsonl", "{\"txt\":\"a\"}\n")},
      {good, write("bytes.txt", "\xff")},
      {good, write("damaged.parquet", "PAR1....PAR1")},
      {good, write("damaged.txt.gz", "\x1f\x8b")},
      {good, write("d.csv", "a")},
      {write("empty.txt", "")}};
  for (const auto& inputs : bad) {
    EXPECT_NE(refusal(inputs), "") << inputs.back();
    EXPECT_EQ(files(), before) << inputs.back();
  }
  make({good});
  EXPECT_EQ(text(), "another text of more than one shard\0"s);
}

TEST_F(CorpusTargetTest, RemovesItsFolderOnFailure) {
  EXPECT_NE(refusal({write("bad.jsonl", "{")}), "");
  EXPECT_FALSE(fs::exists(corpus()));
}

TEST_F(CorpusTargetTest, ACorpusReplacesOneOfMoreShards) {
  make({write("a.txt", std::string(100, 'a'))});
  make({write("b.txt", "b")});
  EXPECT_THAT(files(), ::testing::SizeIs(2));
  EXPECT_EQ(text(), "b\0"s);
  const auto once = files();
  make({write("b.txt", "b")});
  EXPECT_EQ(files(), once);
}

TEST_F(CorpusTargetTest, ASecondWriterIsRefused) {
  CorpusTarget first(corpus(), {});
  EXPECT_THAT(
      refusal({write("a.txt", "a")}),
      AllOf(HasSubstr("another nsa-data writes into " + corpus().string()), HasSubstr("--out")));
}

TEST_F(CorpusTargetTest, ForeignFilesAreRefusedAndKept) {
  const fs::path input = write("a.txt", "a");
  for (const char* name : {"keys.tokens", "train_00000.tokens", "notes.txt", "x/y", ".hidden"}) {
    fs::create_directories((corpus() / name).parent_path());
    std::ofstream(corpus() / name) << "mine";
    EXPECT_THAT(refusal({input}), AllOf(HasSubstr("holds " + fs::path(name).begin()->string()),
                                        HasSubstr("name an empty folder with --out")));
    EXPECT_TRUE(fs::exists(corpus() / name));
    fs::remove_all(corpus());
  }
  fs::create_directories(corpus());
  std::ofstream(corpus() / kManifestName) << "{\"name\": \"a web page\"}";
  EXPECT_THAT(refusal({input}), HasSubstr("holds a manifest.json that is not of a corpus"));
}

TEST_F(CorpusTargetTest, ForeignFilesBesideACorpusAreRefusedToo) {
  make({write("a.txt", "a")});
  std::ofstream(corpus() / "train_00009.tokens") << "mine";
  const auto before = files();
  EXPECT_THAT(refusal({write("b.txt", "b")}), HasSubstr("holds train_00009.tokens"));
  EXPECT_EQ(files(), before);
}

TEST_F(CorpusTargetTest, SourcesMayLieInTheFolder) {
  fs::create_directories(corpus() / "source");
  fs::create_directories(corpus() / "mine");
  std::ofstream(corpus() / "source" / "a.txt") << "a";
  std::ofstream(corpus() / "mine" / "b.txt") << "b";
  make({corpus() / "source" / "a.txt", corpus() / "mine" / "b.txt"});
  EXPECT_EQ(text(), "a\0b\0"s);
  EXPECT_TRUE(fs::exists(corpus() / "source" / "a.txt"));
}

/// A process killed anywhere leaves the old corpus or the new one, and the next call goes on.
TEST_F(CorpusTargetTest, RemovesFilesOfAKilledCall) {
  make({write("a.txt", "a")});
  std::ofstream(corpus() / "train_00000.0123456789ab.tokens") << "half";
  std::ofstream(corpus() / "train_00001.0123456789ab.tokens.part") << "half";
  std::ofstream(corpus() / "manifest.json.part") << "{";
  EXPECT_EQ(text(), "a\0"s);
  make({write("b.txt", "b")});
  EXPECT_EQ(text(), "b\0"s);
  EXPECT_THAT(files(), ::testing::SizeIs(2));
  // Between the two manifests of a commit shards have both names.
  Manifest manifest = read_manifest(corpus());
  ShardFile& shard = manifest.shards.at(0);
  const std::string new_name = "train_00000." + shard.sha256.substr(0, 12) + ".tokens";
  fs::create_hard_link(corpus() / shard.file, corpus() / new_name);
  shard.file = new_name;
  write_manifest(corpus(), manifest);
  EXPECT_EQ(text(), "b\0"s);
  make({write("b.txt", "b")});
  EXPECT_EQ(text(), "b\0"s);
  EXPECT_THAT(files(), ::testing::SizeIs(2));
}

/// Killed in commit(): the new manifest stands, and shards of the old corpus that the new one
/// lacks. One that is read stays, and behind a commit that ended such a name is somebody's.
TEST_F(CorpusTargetTest, RemovesShardsOfTheCorpusBeforeAKilledCommit) {
  make({write("b.txt", "b")});
  Manifest manifest = read_manifest(corpus());
  ShardFile& shard = manifest.shards.at(0);
  const std::string new_name = "train_00000." + shard.sha256.substr(0, 12) + ".tokens";
  fs::rename(corpus() / shard.file, corpus() / new_name);
  shard.file = new_name;
  write_manifest(corpus(), manifest);
  for (const char* name : {"train_00000", "train_00007", "val_00000", "val_answers_00000"})
    std::ofstream(corpus() / (name + ".tokens"s)) << "old";
  EXPECT_EQ(text(), "b\0"s);
  std::ofstream(corpus() / "keys.tokens") << "mine";
  EXPECT_THAT(refusal({write("c.txt", "c")}), HasSubstr("holds keys.tokens"));
  EXPECT_TRUE(fs::exists(corpus() / "val_00000.tokens"));
  fs::remove(corpus() / "keys.tokens");
  make({corpus() / "train_00007.tokens"}, "txt");
  EXPECT_EQ(text(), "old\0"s);
  EXPECT_THAT(files(), ::testing::SizeIs(3)) << "manifest, shard and what was read";
  EXPECT_THAT(refusal({write("c.txt", "c")}), HasSubstr("holds train_00007.tokens"));
}

}  // namespace
}  // namespace nsa::train
