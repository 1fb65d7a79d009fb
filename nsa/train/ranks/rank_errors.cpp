#include "nsa/train/ranks/rank_errors.h"

#include "nsa/program/input_error.h"

namespace nsa::train {

std::vector<std::string> gather_or_throw(RankGroup& ranks, const std::function<std::string()>& f) {
  constexpr char kWorked = '+', kFailed = '-';
  std::string text;
  try {
    text = kWorked + f();
  } catch (const InputError& error) {
    text = kFailed + std::string(error.what());
  }
  std::vector<std::string> texts = ranks.gather(text);
  for (size_t rank = 0; rank < texts.size(); ++rank)
    if (texts[rank].front() == kFailed)
      throw InputError("rank " + std::to_string(rank) + ": " + texts[rank].substr(1));
  for (std::string& each : texts) each.erase(0, 1);
  return texts;
}

}  // namespace nsa::train
