// Program nsa-data: turns text, JSONL or Parquet files into token shards with a manifest of hashes.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "nsa/program/input_error.h"
#include "nsa/program/plain_failure.h"
#include "nsa/program/plain_text.h"
#include "nsa/program/whole_numbers.h"
#include "nsa/train/data/shard_writer.h"

namespace {

constexpr const char* kExamples = R"(
Tokens are bytes (vocabulary 256); token 0 follows every document. A .jsonl file holds one object
a line, whose document is the string --field; a .parquet file one document a row, in its column of
text --field (nulls are skipped and counted); any other file is one document.

Examples:
  nsa-data --in .data/local_text/source/bible-kjv.txt --out .data/local_text
  nsa-data --in part1.jsonl part2.jsonl --out .data/my_corpus --name my_corpus --shard-mib 256
  nsa-data --in notes.txt --out /tmp/notes --val-every 0     # no validation split
  nsa-data --in fineweb-edu/*.parquet --out .data/fineweb_edu  # its column is "text"
  nsa-data --in qa.parquet --field answer --out .data/qa)";

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
  app.add_option("--in", files, "text, .jsonl or .parquet files, in order")->required();
  app.add_option("--out", out, "folder of the corpus; shards of an earlier one there are replaced")
      ->required();
  app.add_option("--name", name,
                 "corpus name, checked when it is read (default: last part of --out)");
  app.add_option("--field", options.field, "of a .jsonl object, column of a .parquet file")
      ->capture_default_str();
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
    if (counts.nulls > 0)
      std::printf("%lld of %lld rows skipped: null in column %s\n",
                  static_cast<long long>(counts.nulls),
                  static_cast<long long>(counts.nulls + counts.taken),
                  nsa::plain_text(options.field).c_str());
    std::printf("%s: %s, %lld train and %lld validation tokens in %zu shards\n",
                nsa::plain_text(folder.string()).c_str(), nsa::plain_text(name).c_str(),
                static_cast<long long>(manifest.num_tokens("train")),
                static_cast<long long>(manifest.num_tokens("val")), manifest.shards.size());
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "nsa-data: %s\n", nsa::plain_text(e.what()).c_str());
    return 2;
  }
}
