#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace nsa::train {

/// Where training rows come from. Row r is a pure function of (source, seed, r), so a run can be
/// repeated or entered at any step, and B rows at once are the same data as two accumulated halves.
class TokenSource {
 public:
  virtual ~TokenSource() = default;

  /// Fills one row of tokens; row counts from 0 over the whole run. Where a row has answers, `out`
  /// may be twice as long: behind the tokens come as many bytes, at place t the answer that is to
  /// be predicted from the tokens before t, 0 where nothing is asked.
  virtual void read_row(int64_t row, std::span<uint8_t> out) const = 0;

  /// Answers in each row of a task: the only targets of loss and accuracy. 0: every token is one.
  virtual int64_t answers_per_row() const { return 0; }

  /// True only for a named corpus whose hashes were verified.
  virtual bool is_real() const = 0;

  /// Name, size and hash, for the record.
  virtual std::string describe() const = 0;
};

inline constexpr const char* kTrainSplit = "train";
inline constexpr const char* kValidationSplit = "val";
/// Behind the name of a split of a task: its answers.
inline constexpr const char* kAnswersSplit = "_answers";

/// Rows at uniformly random positions of a split of the corpus `name` in `dir`; of a task its rows,
/// random ones of split train, those of another one after the other. Throws InputError, also when
/// the split is smaller than one batch of `rows_per_batch` rows of `row_tokens` tokens (which a
/// task need not fill: its rows come again), and when the rows of a task have another length.
std::unique_ptr<TokenSource> open_corpus_source(const std::filesystem::path& dir,
                                                const std::string& name, uint64_t seed,
                                                int64_t row_tokens, int64_t rows_per_batch,
                                                const std::string& split = kTrainSplit);

/// Fresh uniformly random tokens of [0, vocab) in every row, 1 <= vocab <= 256: no model can get
/// below ln(vocab) nat.
std::unique_ptr<TokenSource> make_synthetic_source(int64_t vocab, uint64_t seed);

/// Position of a row in a text of `size` tokens: uniform over [0, size - row_tokens].
int64_t row_position(uint64_t seed, int64_t row, int64_t size, int64_t row_tokens);

}  // namespace nsa::train
