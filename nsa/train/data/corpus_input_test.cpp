// What input files may hold: formats by name, packed files, UTF-8 and nothing else.
#include <zlib.h>
#include <zstd.h>

#include "base/hash/sha256.h"
#include "nsa/train/data/corpus_testing.h"
#include "nsa/train/data/documents/text_reader.h"

namespace nsa::train {
namespace {

using namespace std::string_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string gzip(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string zstd(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

class CorpusInput : public CorpusFolderTest {};

TEST_F(CorpusInput, FormatsFollowTheEndOfTheName) {
  const std::string lines = "{\"text\":\"ab\"}\n{\"text\":\"c\"}\n";
  const std::string want = "ab\0c\0"s;
  for (const char* name : {"d.jsonl", "d.JSONL", "d.ndjson", "d.NdJson", "d.json", "d.JSON"}) {
    EXPECT_EQ(refusal({write(name, lines)}), "") << name;
    EXPECT_EQ(text(), want) << name;
  }
  for (const char* name : {"d.txt", "d.TXT"}) {
    make({write(name, "ab")});
    EXPECT_EQ(text(), "ab\0"s) << name;
  }
}

TEST_F(CorpusInput, PackedFilesAreRead) {
  std::string lines, want;
  for (int i = 0; i < 30000; ++i) {
    lines += "{\"text\":\"document " + std::to_string(i) + "\"}\n";
    want += "document " + std::to_string(i) + '\0';
  }
  for (const auto& [name, bytes] : {std::pair{"d.jsonl.gz"s, gzip(lines)},
                                    {"d.JSONL.GZ"s, gzip(lines)},
                                    {"d.ndjson.gz"s, gzip(lines)},
                                    {"d.jsonl.zst"s, zstd(lines)},
                                    {"d.json.ZST"s, zstd(lines)}}) {
    const auto file = write(name, bytes);
    const Manifest manifest = write_corpus({file}, corpus(), "c", {.val_every = 0});
    EXPECT_EQ(text(), want) << name;
    EXPECT_EQ(manifest.sources.at(0).bytes, static_cast<int64_t>(bytes.size()));
    EXPECT_EQ(manifest.sources.at(0).sha256, base::sha256_file(file));
  }
  make({write("two.txt.gz", gzip("one ") + gzip("two"))});  // as `cat a.gz b.gz` makes it
  EXPECT_EQ(text(), "one two\0"s);
  make({write("two.txt.zst", zstd("one ") + zstd("two"))});
  EXPECT_EQ(text(), "one two\0"s);
}

TEST_F(CorpusInput, DamagedPackedFilesAreNamed) {
  std::string long_text;
  for (int i = 0; i < 9000; ++i) long_text += std::to_string(i * i);
  for (const auto& [name, whole] :
       {std::pair{"d.txt.gz"s, gzip(long_text)}, {"d.txt.zst"s, zstd(long_text)}}) {
    for (const size_t kept : {size_t{0}, size_t{5}, whole.size() / 2, whole.size() - 1})
      EXPECT_THAT(refusal({write(name, whole.substr(0, kept))}),
                  AllOf(HasSubstr(name), HasSubstr("fetch the file again")))
          << kept;
    EXPECT_THAT(refusal({write(name, "plain text")}), HasSubstr("damaged")) << name;
    EXPECT_THAT(refusal({write(name, whole + "more")}), HasSubstr(name));
  }
}

TEST_F(CorpusInput, RefusesOtherNamesAndListsKnownOnes) {
  for (const char* name : {"d.csv", "d.jsonl.bz2", "d.tar.gz", "d.gz", "d", "d.parquet.gz", "d.xz",
                           "d.docx", "d.txt.zip", "jsonl"})
    EXPECT_THAT(refusal({write(name, "{\"text\":\"a\"}\n")}), HasSubstr(name)) << name;
  EXPECT_THAT(refusal({write("d.csv", "a")}),
              AllOf(HasSubstr(".jsonl"), HasSubstr(".zst"), HasSubstr("--format")));
  make({write("d", "{\"text\":\"a\"}\n")}, "jsonl");
  EXPECT_EQ(text(), "a\0"s);
  make({write("notes.md", "# a")}, "txt");
  EXPECT_EQ(text(), "# a\0"s);
}

TEST_F(CorpusInput, PackedDataUnderATextNameAreNamed) {
  EXPECT_THAT(refusal({write("d.jsonl", gzip("x"))}), HasSubstr("is gzip data"));
  EXPECT_THAT(refusal({write("d.txt", zstd("x"))}), HasSubstr("is zstd data"));
  EXPECT_THAT(refusal({write("d.txt", "PK\3\4....")}), HasSubstr("is a zip archive"));
}

TEST_F(CorpusInput, JsonFilesHoldAnArrayOrOneObject) {
  EXPECT_EQ(make({write("d.json", "[\n {\"text\": \"a\"},\n {\"text\": null}, {\"text\": \"b\"}]")})
                .nulls,
            1);
  EXPECT_EQ(text(), "a\0b\0"s);
  make({write("d.json", "{\n  \"text\": \"a\"\n}\n")});
  EXPECT_EQ(text(), "a\0"s);
  EXPECT_THAT(refusal({write("d.json", "[{\"text\":\"a\"}, 7]")}),
              HasSubstr("d.json: entry 2 of the array: must be an object, got number"));
  EXPECT_THAT(refusal({write("d.json", "[\n{\"text\":\"a\"},\n{\"text\": bad}]")}),
              HasSubstr("d.json:3: not valid JSON at column 10"));
  EXPECT_THAT(refusal({write("d.json", "{\"text\":\"a\"}\n{\"text\": bad}\n")}),
              HasSubstr("d.json:2: not valid JSON at column 10"));
  EXPECT_THAT(refusal({write("d.json", "")}), HasSubstr("the corpus is empty"));
}

TEST_F(CorpusInput, ABadLineIsNamedAsALineOfTheFile) {
  const std::string error = refusal({write("d.jsonl", "{\"text\":\"ok\"}\n\n{\"text\": bad}\n")});
  EXPECT_THAT(error, HasSubstr("d.jsonl:3: not valid JSON at column 10"));
  EXPECT_THAT(error, ::testing::Not(HasSubstr("line 1")));
}

TEST_F(CorpusInput, NullsAreCountedAsThoseOfParquetAre) {
  const DocumentCounts counts =
      make({write("d.jsonl", "{\"text\": null}\n{\"text\":\"a\"}\n{\"text\":null,\"id\":1}\n")});
  EXPECT_EQ(counts.nulls, 2);
  EXPECT_EQ(counts.taken, 1);
  EXPECT_EQ(text(), "a\0"s);
  EXPECT_THAT(refusal({write("d.jsonl", "{\"text\": null}\n")}), HasSubstr("(1 null values)"));
}

TEST_F(CorpusInput, ByteOrderMarkIsDropped) {
  make({write("d.txt",
              "\xef\xbb\xbf"
              "ab")});
  EXPECT_EQ(text(), "ab\0"s);
  make({write("d.jsonl", "\xef\xbb\xbf{\"text\":\"ab\"}\n")});
  EXPECT_EQ(text(), "ab\0"s);
  make({write("d.txt.gz", gzip("\xef\xbb\xbf"
                               "ab"))});
  EXPECT_EQ(text(), "ab\0"s);
}

TEST_F(CorpusInput, RefusesInvalidUtf8WithItsPlace) {
  const std::pair<std::string, std::string> cases[] = {
      {"one\ntw\xe9\n", "d.txt:2: byte 6 of the text (0xe9) is not UTF-8"},
      {"\x80", "d.txt:1: byte 0 of the text (0x80)"},
      {"ab\xc3", "byte 2 of the text (0xc3)"},
      {"\xc0\x80", "(0xc0)"},
      {"\xed\xa0\x80", "(0xed)"},
      {"\xf5\x80\x80\x80", "(0xf5)"},
      {std::string(200000, '\n') + "\xff", "d.txt:200001: byte 200000 of the text (0xff)"}};
  for (const auto& [bytes, want] : cases)
    EXPECT_THAT(refusal({write("d.txt", bytes)}), HasSubstr(want));
  EXPECT_THAT(refusal({write("d.jsonl", "{\"text\":\"a\"}\n{\"text\":\"\xe9\"}\n")}),
              HasSubstr("d.jsonl:2: byte 22 of the text (0xe9) is not UTF-8"));
  EXPECT_THAT(refusal({write("d.json", "[{\"text\":\"\xe9\"}]")}), HasSubstr("d.json:1: byte 10"));
  EXPECT_THAT(refusal({write("d.jsonl", "{\"text\":\"\\ud800\"}\n")}), HasSubstr("d.jsonl:1"));
}

TEST_F(CorpusInput, Utf16AndUtf32AreRefusedByName) {
  for (const std::string& bytes : {"\xff\xfeh\0i\0"s, "\xfe\xff\0h\0i"s})
    for (const char* name : {"d.txt", "d.jsonl", "d.json"})
      EXPECT_THAT(refusal({write(name, bytes)}), AllOf(HasSubstr("UTF-16"), HasSubstr("iconv")));
  EXPECT_THAT(refusal({write("d.txt", "\xff\xfe\0\0h\0\0\0"s)}), HasSubstr("UTF-32"));
  EXPECT_THAT(refusal({write("d.txt", "h\0e\0l\0l\0o\0\n\0"s)}), HasSubstr("UTF-16"));
  EXPECT_THAT(refusal({write("d.txt", "\0h\0e\0l\0l\0o\0\n"s)}), HasSubstr("UTF-16"));
}

TEST_F(CorpusInput, NulBytesAreCounted) {
  EXPECT_EQ(make({write("d.txt", "one\0two\0\0three"s)}).nul_bytes, 3);
  EXPECT_EQ(make({write("d.jsonl", "{\"text\":\"a\\u0000b\"}\n")}).nul_bytes, 1);
  EXPECT_EQ(text(), "a\0b\0"s);
  EXPECT_THAT(refusal({write("d.txt", std::string(100, '\0'))}),
              AllOf(HasSubstr("the corpus is empty"), HasSubstr("(100 NUL bytes)")));
}

TEST(FirstNotUtf8, EveryCodePointIsTextAndEveryTruncationIsNot) {
  for (const std::string good : {"", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
                                 "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_FALSE(first_not_utf8("a" + good + "b")) << good;
    if (good.size() > 1) {
      EXPECT_EQ(first_not_utf8("a" + good.substr(0, good.size() - 1) + "b"), 1u);
    }
  }
  for (const std::string bad : {"\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xfe",
                                "\xc1\xbf", "\xed\xbf\xbf", "\xf8\x88\x80\x80\x80"})
    EXPECT_EQ(first_not_utf8("ab" + bad), 2u);
}

}  // namespace
}  // namespace nsa::train
