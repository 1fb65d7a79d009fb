// Program nsa-data: turns text, JSONL or Parquet files into token shards with a manifest of hashes.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "base/text/plain_text.h"
#include "nsa/program/input_error.h"
#include "nsa/program/plain_failure.h"
#include "nsa/program/whole_numbers.h"
#include "nsa/train/data/shard_writer.h"

namespace {

constexpr const char* kExamples = R"(
Tokens are bytes of UTF-8 text (vocabulary 256); token 0 follows every document. The end of a name
gives the format of a file: .txt is one document; .jsonl and .ndjson hold one object a line, whose
document is the string --field; .json an array of such objects, or one a line; .parquet one document
a row, in its column of text --field. Text and JSON may be packed (.gz, .zst). Nulls are skipped and
counted. Anything else is refused; --format names what other names hold.

Examples:
  nsa-data --in .data/local_text/source/bible-kjv.txt --out .data/local_text
  nsa-data --in part1.jsonl part2.jsonl --out .data/my_corpus --name my_corpus --shard-mib 256
  nsa-data --in notes.txt --out /tmp/notes --val-every 0     # no validation split
  nsa-data --in fineweb-edu/*.parquet --out .data/fineweb_edu  # its column is "text"
  nsa-data --in qa.parquet --field answer --out .data/qa
  zcat part*.jsonl.gz | nsa-data --in /dev/stdin --format jsonl --out .data/piped)";

void print_counts(const nsa::train::DocumentCounts& counts, const std::string& field) {
  if (counts.nulls > 0)
    std::printf(
        "%lld of %lld rows skipped: null in column %s\n", static_cast<long long>(counts.nulls),
        static_cast<long long>(counts.nulls + counts.taken), base::plain_text(field).c_str());
  if (counts.nul_bytes > 0)
    std::printf("%lld NUL bytes inside the text: each ends a document, as token 0 does\n",
                static_cast<long long>(counts.nul_bytes));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Turns text into the token shards that nsa-train reads."};
  app.footer(kExamples);
  app.failure_message(nsa::plain_failure);
  std::vector<std::filesystem::path> files;
  std::filesystem::path out;
  std::string name;
  nsa::train::ShardOptions options;
  int64_t shard_mib = 64;
  app.add_option("--in", files, (std::string("files, in order: ") + nsa::train::kFormatsRead))
      ->required();
  app.add_option(
         "--out", out,
         "folder of the corpus; an earlier one there is replaced when the new one is complete")
      ->required();
  app.add_option("--name", name,
                 "corpus name, checked when it is read (default: last part of --out)");
  app.add_option("--field", options.field, "of a JSON object, column of a .parquet file")
      ->capture_default_str();
  app.add_option("--format", options.format,
                 "what the files hold: txt, jsonl or json "
                 "(default: by their names)")
      ->check(CLI::IsMember({"txt", "jsonl", "json"}));
  app.add_option("--shard-mib", shard_mib, "size of a full shard in MiB")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{4096}));
  app.add_option("--val-every", options.val_every,
                 "every n-th block of 16384 tokens is validation data; 0: none")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  nsa::refuse_wrapped_numbers(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  try {
    options.shard_tokens = shard_mib << 20;
    const auto folder = out.filename().empty() ? out.parent_path() : out;
    if (name.empty()) name = folder.filename().string();
    nsa::train::DocumentCounts counts;
    const auto manifest = nsa::train::write_corpus(files, folder, name, options, &counts);
    print_counts(counts, options.field);
    std::printf("%s: %s, %lld train and %lld validation tokens in %zu shards\n",
                base::plain_text(folder.string()).c_str(), base::plain_text(name).c_str(),
                static_cast<long long>(manifest.num_tokens("train")),
                static_cast<long long>(manifest.num_tokens("val")), manifest.shards.size());
    if (options.val_every > 0 && manifest.num_tokens("val") == 0)
      std::fprintf(stderr,
                   "nsa-data: no block is kept out for validation: the text has fewer than %lld "
                   "blocks of 16384 tokens; --val-every 5 or less keeps some of a short text\n",
                   static_cast<long long>(options.val_every));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "nsa-data: %s\n", base::plain_text(e.what()).c_str());
    return 2;
  }
}
