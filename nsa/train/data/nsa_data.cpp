// Program nsa-data: turns text, JSONL or Parquet files, or rows of a task, into token shards with a
// manifest of hashes.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/options/command_line.h"
#include "base/options/refusal.h"
#include "base/text/plain_text.h"
#include "nsa/program/input_error.h"
#include "nsa/train/data/shard_writer.h"
#include "nsa/train/tasks/pass_key.h"
#include "nsa/train/tasks/recall.h"
#include "nsa/train/tasks/task_corpus.h"

namespace {

constexpr const char* kExamples = R"(
Tokens are bytes of UTF-8 text (vocabulary 256); token 0 follows every document. The end of a name
gives the format of a file: .txt is one document; .jsonl and .ndjson hold one object a line, whose
document is the string --field; .json an array of such objects, or one a line; .parquet one document
a row, in its column of text --field. Text and JSON may be packed (.gz, .zst). Nulls are skipped and
counted. Anything else is refused; --format names what other names hold.

--task makes rows of a task instead, with answers: the loss and the accuracy that
nsa-train reports are then of the answers alone. recall: multi-query associative recall (arXiv
2312.04927); pass_key: a number hidden in text (arXiv 2305.16300).

Examples:
  nsa-data --in .data/local_text/source/bible-kjv.txt --out .data/local_text
  nsa-data --in part1.jsonl part2.jsonl --out .data/my_corpus --name my_corpus --shard-mib 256
  nsa-data --in notes.txt --out /tmp/notes --val-every 0     # no validation split
  nsa-data --in fineweb-edu/*.parquet --out .data/fineweb_edu  # its column is "text"
  nsa-data --in qa.parquet --field answer --out .data/qa
  nsa-data --task recall --seq-len 64 --pairs 8 --rows 20000 --out .data/recall
  nsa-data --task pass_key --seq-len 1024 --rows 5000 --out .data/pass_key
  zcat part*.jsonl.gz | nsa-data --in /dev/stdin --format jsonl --out .data/piped)";

/// The command line.
struct DataOptions {
  std::vector<std::filesystem::path> in;
  std::filesystem::path out;
  std::string name;
  std::string field = nsa::train::ShardOptions().field;
  std::string format = nsa::train::ShardOptions().format;
  int64_t shard_mib = 64;
  int64_t val_every = nsa::train::ShardOptions().val_every;
  std::string task;
  int64_t seq_len = 0;
  int64_t rows = nsa::train::TaskRows().train, val_rows = nsa::train::TaskRows().val;
  uint64_t seed = nsa::train::TaskRows().seed;
  int64_t pairs = nsa::train::RecallSizes().pairs, vocab = nsa::train::RecallSizes().vocab;
  int64_t least_pairs = 0;
  int64_t lead = nsa::train::RecallSizes().lead, gap = nsa::train::RecallSizes().gap;
  double power = nsa::train::RecallSizes().power;
  bool random_fill = false;
  int64_t digits = nsa::train::PassKeySizes().digits;
  int64_t depth_pct = nsa::train::PassKeySizes().depth_pct;
  int64_t least_seq_len = nsa::train::PassKeySizes().least_seq_len;

  template <class Visitor>
  static void describe(Visitor& v);

  /// `kept_out`: rows that are kept out have all pairs.
  std::unique_ptr<nsa::train::Task> make_task(bool kept_out) const {
    if (task == "recall")
      return nsa::train::make_recall(
          {.seq_len = seq_len > 0 ? seq_len : nsa::train::RecallSizes().seq_len,
           .pairs = pairs,
           .vocab = vocab,
           .lead = lead,
           .gap = gap,
           .power = power,
           .least_pairs = kept_out ? 0 : least_pairs,
           .random_fill = random_fill});
    return nsa::train::make_pass_key(
        {.seq_len = seq_len > 0 ? seq_len : nsa::train::PassKeySizes().seq_len,
         .digits = digits,
         .depth_pct = depth_pct,
         .least_seq_len = kept_out ? 0 : least_seq_len});
  }

  nsa::train::ShardOptions of_shards() const {
    nsa::train::ShardOptions options;
    options.field = field;
    options.format = format;
    options.shard_tokens = shard_mib << 20;
    options.val_every = val_every;
    return options;
  }
};

template <class Visitor>
void DataOptions::describe(Visitor& v) {
  using O = DataOptions;
  static const std::string files = std::string("files, in order: ") + nsa::train::kFormatsRead;
  v({.name = "in", .doc = files, .form = base::ListForm::kWords}, &O::in);
  v({.name = "out",
     .doc = "folder of the corpus; an earlier one there is replaced when the new one is complete",
     .required = true},
    &O::out);
  v({"name", "corpus name, checked when it is read (default: last part of --out)"}, &O::name);
  v({"field", "of a JSON object, column of a .parquet file"}, &O::field);
  v({.name = "format",
     .doc = "what the files hold: txt, jsonl or json (default: by their names)",
     .choices = "txt, jsonl or json"},
    &O::format);
  v({.name = "shard_mib", .doc = "size of a full shard in MiB", .least = 1, .most = 4096},
    &O::shard_mib);
  v({.name = "val_every",
     .doc = "every n-th block of 16384 tokens is validation data; 0: none",
     .least = 0},
    &O::val_every);
  v({.name = "task",
     .doc = "make rows of a task instead",
     .choices = "recall or pass_key",
     .not_with = "in"},
    &O::task);
  v({.name = "rows", .doc = "task: rows to train on", .least = 1}, &O::rows);
  v({.name = "val_rows", .doc = "task: rows that are kept out", .least = 1}, &O::val_rows);
  v({.name = "seq_len", .doc = "task: tokens of a row; 0: 64, pass_key 512", .least = 0},
    &O::seq_len);
  v({"seed", "task: of the rows"}, &O::seed);
  v({.name = "pairs", .doc = "recall: pairs of key and value", .least = 1}, &O::pairs);
  v({.name = "vocab", .doc = "recall: keys and values", .least = 4, .most = 256}, &O::vocab);
  v({.name = "least_pairs",
     .doc = "recall: different pairs in a row to train on, at least; 0: all",
     .least = 0},
    &O::least_pairs);
  v({.name = "lead", .doc = "recall: tokens before the pairs", .least = 0}, &O::lead);
  v({.name = "gap", .doc = "recall: tokens between pairs and queries", .least = 0}, &O::gap);
  v({.name = "power", .doc = "recall: places of queries, weights i^(power - 1)", .above = 0},
    &O::power);
  v({"random_fill", "recall: random tokens between pairs and queries, not 0"}, &O::random_fill);
  v({.name = "digits", .doc = "pass_key: digits of the number", .least = 1}, &O::digits);
  v({.name = "depth_pct",
     .doc = "pass_key: where the number stands; -1: drawn for each row",
     .least = -1,
     .most = 100},
    &O::depth_pct);
  v({.name = "least_seq_len",
     .doc = "pass_key: rows to train on end where it is drawn, from this many tokens on; 0: all "
            "end at seq_len",
     .least = 0},
    &O::least_seq_len);
}

void print_counts(const nsa::train::DocumentCounts& counts, const std::string& field) {
  if (counts.nulls > 0)
    std::printf(
        "%lld of %lld rows skipped: null in column %s\n", static_cast<long long>(counts.nulls),
        static_cast<long long>(counts.nulls + counts.taken), base::plain_text(field).c_str());
  if (counts.nul_bytes > 0)
    std::printf("%lld NUL bytes inside the text: each ends a document, as token 0 does\n",
                static_cast<long long>(counts.nul_bytes));
}

int write_task(const DataOptions& asked, const std::filesystem::path& folder,
               const std::string& name) {
  const auto manifest = nsa::train::write_task_corpus(
      *asked.make_task(false), {.train = asked.rows, .val = asked.val_rows, .seed = asked.seed},
      folder, name, asked.make_task(true).get());
  std::printf("%s: %s, %lld rows to train on and %lld kept out: %s\n",
              base::plain_text(folder.string()).c_str(), base::plain_text(name).c_str(),
              static_cast<long long>(asked.rows), static_cast<long long>(asked.val_rows),
              manifest.task.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Turns text into the token shards that nsa-train reads."};
  app.footer(kExamples);
  app.failure_message(base::plain_failure);
  DataOptions asked;
  base::declare(app, asked);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  try {
    const auto& out = asked.out;
    const auto folder = out.filename().empty() ? out.parent_path() : out;
    const std::string name = asked.name.empty() ? folder.filename().string() : asked.name;
    if (!asked.task.empty()) return write_task(asked, folder, name);
    if (asked.in.empty())
      throw nsa::InputError("no input: give --in FILE.., or --task recall or pass_key");
    nsa::train::DocumentCounts counts;
    const auto manifest =
        nsa::train::write_corpus(asked.in, folder, name, asked.of_shards(), &counts);
    print_counts(counts, asked.field);
    std::printf("%s: %s, %lld train and %lld validation tokens in %zu shards\n",
                base::plain_text(folder.string()).c_str(), base::plain_text(name).c_str(),
                static_cast<long long>(manifest.num_tokens("train")),
                static_cast<long long>(manifest.num_tokens("val")), manifest.shards.size());
    if (asked.val_every > 0 && manifest.num_tokens("val") == 0)
      std::fprintf(stderr,
                   "nsa-data: no block is kept out for validation: the text has fewer than %lld "
                   "blocks of 16384 tokens; --val-every 5 or less keeps some of a short text\n",
                   static_cast<long long>(asked.val_every));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "nsa-data: %s\n", base::plain_text(e.what()).c_str());
    return 2;
  }
}
