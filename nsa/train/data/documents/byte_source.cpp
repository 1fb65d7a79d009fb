#include "nsa/train/data/documents/byte_source.h"

#include "nsa/program/input_error.h"

namespace nsa::train {

InputFile::InputFile(const std::filesystem::path& file) : file_(file) {
  std::error_code error;
  in_.open(file, std::ios::binary);
  if (!in_ || std::filesystem::is_directory(file, error))
    throw InputError("cannot read " + file.string());
}

size_t InputFile::read(std::span<char> out) {
  in_.read(out.data(), static_cast<std::streamsize>(out.size()));
  if (in_.bad()) throw InputError("reading " + file_.string() + " failed");
  const auto count = static_cast<size_t>(in_.gcount());
  hash_.update(std::string_view(out.data(), count));
  bytes_ += static_cast<int64_t>(count);
  return count;
}

SourceFile InputFile::description() { return {file_.filename().string(), bytes_, hash_.hex()}; }

}  // namespace nsa::train
