// Parquet: columns of text to documents, every way in which a file can be unfit, memory of large
// row groups.
#include <arrow/io/file.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <parquet/column_writer.h>
#include <parquet/file_writer.h>
#include <parquet/schema.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <optional>

#include "base/testing/paths.h"
#include "nsa/program/input_error.h"
#include "nsa/train/data/corpus.h"
#include "nsa/train/data/documents/parquet_documents.h"
#include "nsa/train/data/shard_writer.h"

namespace nsa::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Texts = std::vector<std::optional<std::string>>;  ///< of a row group

::parquet::schema::NodePtr leaf(const std::string& name, ::parquet::Repetition::type repetition,
                                ::parquet::Type::type type, bool is_text = false) {
  return ::parquet::schema::PrimitiveNode::Make(
      name, repetition, is_text ? ::parquet::LogicalType::String() : ::parquet::LogicalType::None(),
      type);
}

/// Columns id (INT64), text, blob (bytes without a type), tags (a list).
std::shared_ptr<::parquet::schema::GroupNode> make_schema() {
  using ::parquet::Repetition;
  using ::parquet::Type;
  return std::static_pointer_cast<::parquet::schema::GroupNode>(::parquet::schema::GroupNode::Make(
      "schema", Repetition::REQUIRED,
      {leaf("id", Repetition::REQUIRED, Type::INT64),
       leaf("text", Repetition::OPTIONAL, Type::BYTE_ARRAY, true),
       leaf("blob", Repetition::REQUIRED, Type::BYTE_ARRAY),
       leaf("tags", Repetition::REPEATED, Type::BYTE_ARRAY, true)}));
}

void write_texts(::parquet::ByteArrayWriter& writer, const Texts& texts) {
  for (const auto& text : texts) {
    const int16_t level = text ? 1 : 0;
    const ::parquet::ByteArray value(text ? std::string_view(*text) : std::string_view());
    writer.WriteBatch(1, &level, nullptr, &value);
  }
}

void write_parquet(const fs::path& file, const std::vector<Texts>& groups,
                   ::parquet::Compression::type codec = ::parquet::Compression::SNAPPY) {
  ::parquet::WriterProperties::Builder properties;
  properties.compression(codec)->enable_page_checksum();
  auto sink = ::arrow::io::FileOutputStream::Open(file.string()).ValueOrDie();
  auto writer = ::parquet::ParquetFileWriter::Open(sink, make_schema(), properties.build());
  for (const Texts& texts : groups) {
    auto* group = writer->AppendRowGroup();
    auto& ids = static_cast<::parquet::Int64Writer&>(*group->NextColumn());
    for (int64_t i = 0; i < static_cast<int64_t>(texts.size()); ++i)
      ids.WriteBatch(1, nullptr, nullptr, &i);
    write_texts(static_cast<::parquet::ByteArrayWriter&>(*group->NextColumn()), texts);
    const ::parquet::ByteArray nothing("");
    const int16_t no_level = 0;
    auto& blobs = static_cast<::parquet::ByteArrayWriter&>(*group->NextColumn());
    for (size_t i = 0; i < texts.size(); ++i) blobs.WriteBatch(1, nullptr, nullptr, &nothing);
    auto& tags = static_cast<::parquet::ByteArrayWriter&>(*group->NextColumn());
    for (size_t i = 0; i < texts.size(); ++i) tags.WriteBatch(1, &no_level, &no_level, nullptr);
  }
  writer->Close();
  ASSERT_TRUE(sink->Close().ok());
}

class ParquetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / ("nsa_parquet_test_" + std::to_string(getpid()));
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    file_ = dir_ / "d.parquet";
  }
  void TearDown() override { fs::remove_all(dir_); }

  std::vector<std::string> read(const fs::path& file, DocumentCounts* counts = nullptr) {
    std::vector<std::string> documents;
    const DocumentCounts have = for_each_document(
        file, "text", [&](std::string_view bytes) { documents.emplace_back(bytes); });
    EXPECT_EQ(have.taken, static_cast<int64_t>(documents.size()));
    if (counts) *counts = have;
    return documents;
  }
  std::string error_of(const std::string& field = "text") {
    try {
      for_each_document(file_, field, [](std::string_view) {});
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr(file_.string()));
      return error.what();
    }
    return "";
  }
  std::string slurp() {
    std::ifstream in(file_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void spill(const std::string& bytes) { std::ofstream(file_, std::ios::binary) << bytes; }

  fs::path dir_, file_;
};

TEST_F(ParquetTest, DocumentsOfAllRowGroupsInOrderWithoutNulls) {
  const std::string hostile("\0\xef\xbb\xbf\x1b[31m\r\n", 11);
  for (const auto codec : {::parquet::Compression::SNAPPY, ::parquet::Compression::ZSTD,
                           ::parquet::Compression::UNCOMPRESSED}) {
    write_parquet(
        file_, {{"first", std::nullopt, hostile}, {}, {std::nullopt}, {"", "same", "same"}}, codec);
    DocumentCounts counts;
    EXPECT_THAT(read(file_, &counts), ::testing::ElementsAre("first", hostile, "", "same", "same"));
    EXPECT_EQ(counts.nulls, 2);
  }
}

TEST_F(ParquetTest, TextThatIsNotUtf8IsRefusedAndNulsAreCounted) {
  for (const std::string bad : {"\xff\xfe", "a\xc3", "\xed\xa0\x80", "\xc0\x80"}) {
    write_parquet(file_, {{"good", std::nullopt}, {bad}});
    EXPECT_THAT(error_of(), HasSubstr("column text: text 2 (nulls not counted) is not UTF-8"));
  }
  write_parquet(file_, {{std::string("a\0b\0", 4)}});
  DocumentCounts counts;
  read(file_, &counts);
  EXPECT_EQ(counts.nul_bytes, 2);
}

TEST_F(ParquetTest, TheExtensionMayBeInCapitals) {
  write_parquet(file_, {{"a"}});
  fs::rename(file_, dir_ / "D.PARQUET");
  EXPECT_THAT(read(dir_ / "D.PARQUET"), ::testing::ElementsAre("a"));
}

TEST_F(ParquetTest, ManyMoreRowsThanOneRead) {
  Texts texts;
  std::vector<std::string> want;
  for (int i = 0; i < 5000; ++i) {
    if (i % 7 == 3) {
      texts.emplace_back(std::nullopt);
    } else {
      want.push_back(std::string(static_cast<size_t>(i) * 37 % 1500, 'a') + std::to_string(i));
      texts.emplace_back(want.back());
    }
  }
  write_parquet(file_, {texts, texts});
  DocumentCounts counts;
  const auto have = read(file_, &counts);
  ASSERT_EQ(have.size(), 2 * want.size());
  for (size_t i = 0; i < have.size(); ++i) ASSERT_EQ(have[i], want[i % want.size()]) << i;
  EXPECT_EQ(counts.nulls, 2 * (5000 - static_cast<int64_t>(want.size())));
}

TEST_F(ParquetTest, FileOfAnotherWriter) {
  DocumentCounts counts;
  const auto have =
      read(base::source_dir() + "/nsa/train/data/documents/testdata/pyarrow.parquet", &counts);
  EXPECT_EQ(have.size(), 9u);
  EXPECT_EQ(counts.nulls, 3);
  EXPECT_EQ(have.at(0), "In the beginning 0 \u00e9");
  EXPECT_EQ(have.at(8), "In the beginning 11 \u00e9");
}

TEST_F(ParquetTest, BecomesACorpus) {
  write_parquet(file_, {{"ab", std::nullopt}, {"c"}});
  DocumentCounts counts;
  write_corpus({file_}, dir_ / "c", "c", {.val_every = 0}, &counts);
  const Corpus corpus = Corpus::open(dir_ / "c", "c", "train");
  std::vector<uint8_t> have(static_cast<size_t>(corpus.size()));
  corpus.read(0, have);
  EXPECT_EQ(have, (std::vector<uint8_t>{'a', 'b', 0, 'c', 0}));
  EXPECT_EQ(counts.taken, 2);
  EXPECT_EQ(counts.nulls, 1);
}

TEST_F(ParquetTest, ACorpusOfNullsIsEmpty) {
  write_parquet(file_, {{std::nullopt, std::nullopt}});
  try {
    write_corpus({file_}, dir_ / "c", "c", {});
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the corpus is empty: the input files hold no text (2 "
                                        "null values)"));
  }
}

TEST_F(ParquetTest, UnfitColumnsAreNamed) {
  write_parquet(file_, {{"a"}});
  EXPECT_EQ(error_of(), "");
  EXPECT_THAT(
      error_of("txt"),
      AllOf(HasSubstr("column txt is missing; it has id, text, blob, tags"), HasSubstr("--field")));
  EXPECT_THAT(error_of("id"), HasSubstr("column id must be text (string), got INT64"));
  EXPECT_THAT(error_of("blob"), HasSubstr("column blob must be text (string), got BYTE_ARRAY"));
  EXPECT_THAT(error_of("tags"), HasSubstr("column tags must hold one text a row, got a list"));
  EXPECT_THAT(error_of(""), HasSubstr("column  is missing"));
}

TEST_F(ParquetTest, UnfitFilesAreNamed) {
  write_parquet(file_, {{"some text", "more text"}});
  const std::string good = slurp();
  spill("");
  EXPECT_THAT(error_of(), HasSubstr("is empty (0 bytes); fetch the file again"));
  spill("PAR");
  EXPECT_THAT(error_of(), HasSubstr("is no Parquet file: it must begin with PAR1"));
  spill("{\"text\": \"json\"}\n");
  EXPECT_THAT(error_of(), HasSubstr("is no Parquet file"));
  spill(good.substr(0, good.size() / 2));
  EXPECT_THAT(error_of(), HasSubstr("is truncated: " + std::to_string(good.size() / 2) + " bytes"));
  spill(good.substr(0, good.size() - 1));
  EXPECT_THAT(error_of(), HasSubstr("is truncated"));
  spill("PAR1PAR1");
  EXPECT_THAT(error_of(), HasSubstr("the file is damaged: fetch it again"));
  spill("PAR1" + good.substr(good.size() / 2));  // the middle is gone, both ends are there
  EXPECT_THAT(error_of(), HasSubstr("the file is damaged: fetch it again"));
  spill("PARE" + good.substr(4, good.size() - 8) + "PARE");
  EXPECT_THAT(error_of(), HasSubstr("is an encrypted Parquet file"));
  fs::remove(file_);
  EXPECT_THAT(error_of(), HasSubstr("cannot read"));
}

TEST_F(ParquetTest, EveryFlippedByteOfAPageIsFound) {
  write_parquet(file_, {{"one document of the text", "another one, quite different"}},
                ::parquet::Compression::UNCOMPRESSED);
  const std::string good = slurp();
  const size_t at = good.find("another one");
  ASSERT_NE(at, std::string::npos);
  std::string bad = good;
  bad[at] ^= 1;
  spill(bad);
  EXPECT_THAT(error_of(), AllOf(HasSubstr("column text, row group 0 of 1"),
                                HasSubstr("the file is damaged: fetch it again")));
}

TEST_F(ParquetTest, NoByteOfTheDescriptionCrashesTheReader) {
  write_parquet(file_, {{"some text", "more text"}});
  const std::string good = slurp();
  int refused = 0;
  for (size_t i = 4; i < good.size() - 4; i += 3) {
    std::string bad = good;
    bad[i] ^= 0x55;
    spill(bad);
    refused += !error_of().empty();  // nothing but InputError passes here
  }
  EXPECT_GT(refused, 20);
}

TEST_F(ParquetTest, AParquetFileOfAnotherNameIsNotText) {
  write_parquet(file_, {{"a"}});
  fs::rename(file_, dir_ / "d.txt");
  file_ = dir_ / "d.txt";
  EXPECT_THAT(error_of(), HasSubstr("is a Parquet file; let its name end in .parquet"));
}

int64_t resident_mib() {
  std::ifstream status("/proc/self/statm");
  int64_t total = 0, resident = 0;
  status >> total >> resident;
  return resident * getpagesize() >> 20;
}

TEST_F(ParquetTest, MemoryIsThatOfPagesNotOfRowGroups) {
  constexpr int kRows = 6000, kBytes = 20000;
  // Written by a child: memory that a writer gave back would hide what the reader takes.
  const pid_t child = fork();
  if (child == 0) {
    Texts texts;
    for (int i = 0; i < kRows; ++i)
      texts.emplace_back(std::string(kBytes, static_cast<char>('a' + i % 26)) + std::to_string(i));
    write_parquet(file_, {texts}, ::parquet::Compression::UNCOMPRESSED);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  const int64_t before = resident_mib();
  int64_t most = 0, documents = 0;
  for_each_document(file_, "text", [&](std::string_view document) {
    documents += document.size() > kBytes;
    if (documents % 100 == 0) most = std::max(most, resident_mib() - before);
  });
  EXPECT_EQ(documents, kRows);
  EXPECT_LT(most, 30) << "MiB for a row group of 114 MiB";
}

}  // namespace
}  // namespace nsa::train
