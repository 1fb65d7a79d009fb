// Shards: round trip, split, and every way in which a corpus can be broken.
#include "nsa/train/data/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/hash/sha256.h"
#include "nsa/program/input_error.h"
#include "nsa/train/data/corpus_folder.h"
#include "nsa/train/data/shard_writer.h"
#include "nsa/train/data/token_source.h"

namespace nsa::train {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// Text of the InputError that `call` throws; "" if it throws none.
template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

TEST(CorpusFolder, IsHereElseBesideTheProgramElseNamed) {
  EXPECT_EQ(corpus_folder("no_such_root", "c"), fs::path("no_such_root/c"));
  EXPECT_EQ(corpus_folder("/no_such_root", "c"), fs::path("/no_such_root/c"));
  const fs::path program = fs::read_symlink("/proc/self/exe").parent_path();
  const std::string root = "corpus_folder_test_" + std::to_string(getpid());
  fs::create_directories(program / root / "c");
  EXPECT_EQ(corpus_folder(root, "c"), program / root / "c");
  if (fs::current_path() != program) {
    fs::create_directories(fs::path(root) / "c");
    EXPECT_EQ(corpus_folder(root, "c"), fs::path(root) / "c");
    fs::remove_all(root);
  }
  fs::remove_all(program / root);
}

class CorpusTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / ("nsa_corpus_test_" + std::to_string(getpid()));
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  fs::path write(const std::string& name, const std::string& bytes) {
    std::ofstream(dir_ / name, std::ios::binary) << bytes;
    return dir_ / name;
  }
  std::string slurp(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  /// A corpus of 10,000 tokens in small blocks and shards, under dir_/c.
  Manifest small_corpus() {
    std::string text;
    for (int i = 0; i < 9999; ++i) text += static_cast<char>(1 + (i * 7 + i / 256) % 127);
    return write_corpus({write("t.txt", text)}, dir_ / "c", "c",
                        {.shard_tokens = 1000, .block_tokens = 100, .val_every = 10});
  }
  fs::path dir_;
};

TEST_F(CorpusTest, Sha256OfPublishedVectors) {
  const std::string abc = "abc";
  const std::string want = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  EXPECT_EQ(base::sha256_hex(abc), want);
  EXPECT_EQ(base::sha256_file(write("abc", abc)), want);
  EXPECT_EQ(base::sha256_hex(""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST_F(CorpusTest, RoundTripAndDisjointSplits) {
  const Manifest manifest = small_corpus();
  EXPECT_EQ(manifest.num_tokens("train"), 9000);
  EXPECT_EQ(manifest.num_tokens("val"), 1000);
  EXPECT_EQ(manifest.sources.at(0).bytes, 9999);
  const std::string text = slurp(dir_ / "t.txt") + '\0';
  std::string want_train, want_val;
  for (size_t block = 0; block < 100; ++block)
    (block % 10 == 9 ? want_val : want_train) += text.substr(100 * block, 100);
  for (const auto& [split, want] : {std::pair{"train", want_train}, {"val", want_val}}) {
    const Corpus corpus = Corpus::open(dir_ / "c", "c", split);
    std::vector<uint8_t> have(want.size());
    corpus.read(0, have);
    EXPECT_EQ(std::string(have.begin(), have.end()), want) << split;
  }
  const Corpus corpus = Corpus::open(dir_ / "c", "c", "train");
  std::vector<uint8_t> across(1500);
  corpus.read(777, across);
  EXPECT_EQ(std::string(across.begin(), across.end()), want_train.substr(777, 1500));
  EXPECT_THROW(corpus.read(7600, across), std::out_of_range);
  EXPECT_THROW(corpus.read(-1, across), std::out_of_range);
}

TEST_F(CorpusTest, SameInputGivesSameBytes) {
  small_corpus();
  const std::string first = slurp(dir_ / "c" / kManifestName);
  small_corpus();
  EXPECT_EQ(slurp(dir_ / "c" / kManifestName), first);
}

TEST_F(CorpusTest, JsonlDocumentsEndWithTokenZero) {
  const auto file =
      write("d.jsonl", "{\"text\":\"ab\",\"id\":1}\n\n{\"text\":\"\\u00e9\"}\n{\"text\":\"\"}\n");
  write_corpus({file}, dir_ / "c", "c", {.val_every = 0});
  const Corpus corpus = Corpus::open(dir_ / "c", "c", "train");
  std::vector<uint8_t> have(static_cast<size_t>(corpus.size()));
  corpus.read(0, have);
  EXPECT_EQ(have, (std::vector<uint8_t>{'a', 'b', 0, 0xc3, 0xa9, 0}));
}

TEST_F(CorpusTest, BadJsonlNamesFileAndLine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{\"text\":\"a\"}\n{\"text\":", "d.jsonl:2: not valid JSON"},
      {"[1]\n", "d.jsonl:1: must be an object, got array"},
      {"\n{\"txt\":\"a\"}\n", "d.jsonl:2: field \"text\" is missing"},
      {"{\"text\":7}\n", "d.jsonl:1: field \"text\" must be a string, got number"},
      {"{\"text\":\"\xff\xfe\"}\n", "d.jsonl:1: byte 9 of the text (0xff) is not UTF-8"},
      {std::string("{\"text\":\"a\0b\"}\n", 15), "d.jsonl:1: not valid JSON"}};
  for (const auto& [bytes, want] : cases) {
    const auto file = write("d.jsonl", bytes);
    EXPECT_THAT(error_of([&] { write_corpus({file}, dir_ / "c", "c", {}); }), HasSubstr(want));
    EXPECT_FALSE(fs::exists(dir_ / "c" / kManifestName));
  }
}

/// A writer is given text; what it does with it does not depend on the bytes.
TEST_F(CorpusTest, EveryByteSurvivesTheWriter) {
  std::string bytes;
  for (int i = 0; i < 512; ++i) bytes += static_cast<char>(i * 7);
  {
    CorpusTarget target(dir_ / "c", {});
    ShardWriter writer(target, "c", {.val_every = 0});
    writer.add_document(bytes);
    writer.finish();
  }
  const Corpus corpus = Corpus::open(dir_ / "c", "c", "train");
  std::vector<uint8_t> have(bytes.size());
  corpus.read(0, have);
  EXPECT_EQ(std::string(have.begin(), have.end()), bytes);
}

TEST_F(CorpusTest, HostileTextSurvives) {
  const std::string hostile("\x1b[31m|`<script>\r\n\xef\xbf\xbf\xf4\x8f\xbf\xbf\xc2\x80(");
  write_corpus({write("h.txt", hostile)}, dir_ / "c", "c", {.val_every = 0});
  const Corpus corpus = Corpus::open(dir_ / "c", "c", "train");
  std::vector<uint8_t> have(hostile.size());
  corpus.read(0, have);
  EXPECT_EQ(std::string(have.begin(), have.end()), hostile);
}

TEST_F(CorpusTest, EmptyAndMissingInput) {
  const auto empty = write("e.txt", "");
  EXPECT_THAT(error_of([&] { write_corpus({empty}, dir_ / "c", "c", {}); }),
              HasSubstr("the corpus is empty"));
  EXPECT_THAT(error_of([&] { write_corpus({dir_ / "no.txt"}, dir_ / "c", "c", {}); }),
              HasSubstr("cannot read " + (dir_ / "no.txt").string()));
  EXPECT_THAT(error_of([&] { write_corpus({dir_}, dir_ / "c", "c", {}); }),
              HasSubstr("cannot read"));
  EXPECT_THAT(error_of([&] { write_corpus({empty}, empty / "c", "c", {}); }),
              HasSubstr("cannot create folder"));
}

TEST_F(CorpusTest, EveryCorruptionIsNamed) {
  const auto open = [&](const std::string& split = "train") {
    return error_of([&] { Corpus::open(dir_ / "c", "c", split); });
  };
  EXPECT_THAT(open(), HasSubstr("tools/corpus makes local_text"));
  small_corpus();
  EXPECT_EQ(open(), "");
  EXPECT_THAT(open("test"), HasSubstr("has no tokens in split test"));
  EXPECT_THAT(error_of([&] { Corpus::open(dir_ / "c", "other", "train"); }),
              HasSubstr("is \"c\", asked for was \"other\""));

  const fs::path shard = dir_ / "c" / "train_00003.tokens";
  const std::string good = slurp(shard);
  std::string flipped = good;
  flipped[500] ^= 1;
  std::ofstream(shard, std::ios::binary) << flipped;
  EXPECT_THAT(open(), ::testing::AllOf(HasSubstr("train_00003.tokens has sha256"),
                                       HasSubstr("its manifest lists")));
  std::ofstream(shard, std::ios::binary) << good.substr(0, 999);
  EXPECT_THAT(open(), HasSubstr("has 999 tokens, its manifest lists 1000"));
  fs::remove(shard);
  EXPECT_THAT(open(), HasSubstr("cannot read shard " + shard.string()));
  std::ofstream(shard, std::ios::binary) << good;
  EXPECT_EQ(open(), "");
}

TEST_F(CorpusTest, BadManifestIsNamed) {
  small_corpus();
  const fs::path path = dir_ / "c" / kManifestName;
  const std::string good = slurp(path);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    std::ofstream(path, std::ios::binary) << text;
    return error_of([&] { Corpus::open(dir_ / "c", "c", "train"); });
  };
  EXPECT_THAT(with("\"vocab\"", "\"vocob\""), HasSubstr("key \"vocab\" is missing"));
  EXPECT_THAT(with("\"split\": \"train\"", "\"split\": \"trane\""),
              HasSubstr("\"split\" must be train or val"));
  EXPECT_THAT(with("\"train_00000.tokens\"", "\"../x\""),
              HasSubstr("must be a name without folders"));
  EXPECT_THAT(with("\"tokens\": 1000", "\"tokens\": -1"),
              HasSubstr("\"tokens\" must be >= 1, got -1"));
  EXPECT_THAT(with("\"tokens\": 1000", "\"tokens\": \"x\""),
              HasSubstr("\"tokens\" must be an integer, got \"x\""));
  EXPECT_THAT(with("\"schema\": \"nsa-corpus/1\"", "\"schema\": \"v9\""),
              HasSubstr("must be nsa-corpus/1, got \"v9\""));
  EXPECT_THAT(with("\"name\": \"c\"", "\"name\": \"c\", \"name\": \"d\""),
              HasSubstr("\"name\" is given twice"));
  EXPECT_THAT(with("\"name\": \"c\"", "\"name\": \"c\", \"extra\": 1"),
              HasSubstr("unknown key \"extra\""));
  EXPECT_THAT(with("}", ""), HasSubstr("not valid JSON"));
}

TEST_F(CorpusTest, SamplesAreReproducibleByRowAndSeed) {
  small_corpus();
  const auto a = open_corpus_source(dir_ / "c", "c", 1, 65, 4);
  const auto b = open_corpus_source(dir_ / "c", "c", 1, 65, 4);
  const auto other = open_corpus_source(dir_ / "c", "c", 2, 65, 4);
  std::vector<uint8_t> x(65), y(65), z(65);
  int equal_across_seeds = 0;
  for (const int64_t row : {5, 0, 3, 1000000}) {  // any order: no state
    a->read_row(row, x);
    b->read_row(row, y);
    other->read_row(row, z);
    EXPECT_EQ(x, y);
    equal_across_seeds += x == z;
  }
  EXPECT_EQ(equal_across_seeds, 0);
  EXPECT_TRUE(a->is_real());
  EXPECT_THAT(a->describe(), HasSubstr("manifest sha256"));
}

TEST_F(CorpusTest, PositionsCoverTheWholeText) {
  std::vector<int> seen(11);
  for (int64_t row = 0; row < 11000; ++row)
    ++seen.at(static_cast<size_t>(row_position(3, row, 20, 10)));
  for (const int count : seen) EXPECT_NEAR(count, 1000, 150);  // 5 standard deviations
}

TEST_F(CorpusTest, CorpusSmallerThanABatch) {
  small_corpus();
  EXPECT_THAT(error_of([&] { open_corpus_source(dir_ / "c", "c", 1, 2049, 8); }),
              HasSubstr("has 9000 train tokens, one batch needs 16392"));
}

TEST_F(CorpusTest, SyntheticTokensAreUniformAndFresh) {
  const auto source = make_synthetic_source(8, 1);
  std::vector<int> seen(8);
  std::vector<uint8_t> row(1000), before(1000);
  for (int64_t r = 0; r < 8; ++r) {
    source->read_row(r, row);
    for (const uint8_t token : row) ++seen.at(token);
    EXPECT_NE(row, before);
    before = row;
  }
  for (const int count : seen) EXPECT_NEAR(count, 1000, 150);
  EXPECT_FALSE(source->is_real());
  EXPECT_THAT(error_of([] { make_synthetic_source(257, 1); }),
              HasSubstr("must be in 1..256, got 257"));
}

}  // namespace
}  // namespace nsa::train
