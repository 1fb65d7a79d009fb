#include "nsa/train/record/loss_file.h"

#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "nsa/program/input_error.h"

namespace nsa::train {
namespace {

std::string cell(double value) {
  if (!std::isfinite(value)) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

}  // namespace

LossFile::LossFile(const std::filesystem::path& path, const std::vector<StepRecord>& trace)
    : path_(path), out_(path) {
  if (!out_)
    throw InputError(path.string() +
                     " cannot be opened; name a folder with --out that can be written");
  out_ << "step,loss_nat,validation_loss_nat,learning_rate,gradient_norm,tokens_per_second\n";
  for (const StepRecord& record : trace) add(record);
}

void LossFile::add(const StepRecord& r) {
  if (path_.empty()) return;
  out_ << r.step << ',' << cell(r.loss) << ','
       << (r.validation_loss ? cell(*r.validation_loss) : "") << ',' << cell(r.lr) << ','
       << cell(r.grad_norm) << ',' << cell(r.tok_s) << '\n'
       << std::flush;
  if (!out_) throw std::runtime_error(path_.string() + " cannot be written; is the disk full?");
}

}  // namespace nsa::train
