#include "harness/trace/gzip.h"

#include <zlib.h>

#include <memory>
#include <vector>

#include "harness/schema/error.h"

namespace harness::trace {
namespace {

struct CloseGzip {
  void operator()(gzFile file) const { gzclose(file); }
};
using GzipFile = std::unique_ptr<gzFile_s, CloseGzip>;

constexpr unsigned kBlock = 1 << 20;

}  // namespace

void write_text(const std::filesystem::path& file, std::string_view text) {
  GzipFile out(gzopen(file.c_str(), file.extension() == ".gz" ? "wb6" : "wbT"));
  bool good = out != nullptr;
  for (size_t at = 0; good && at < text.size(); at += kBlock) {
    const auto count = static_cast<unsigned>(std::min<size_t>(kBlock, text.size() - at));
    good = gzwrite(out.get(), text.data() + at, count) == static_cast<int>(count);
  }
  good = good && gzclose(out.release()) == Z_OK;
  if (!good) throw Error("cannot write " + file.string());
}

std::string read_maybe_gzip(const std::filesystem::path& file, size_t most_bytes) {
  const GzipFile in(gzopen(file.c_str(), "rb"));
  if (in == nullptr) throw Error("cannot read " + file.string());
  std::string text;
  std::vector<char> block(kBlock);
  int got = 0;
  while ((got = gzread(in.get(), block.data(), kBlock)) > 0) {
    if (text.size() + static_cast<size_t>(got) > most_bytes)
      throw Error(file.string() + " must hold at most " + std::to_string(most_bytes) +
                  " bytes of text, got more");
    text.append(block.data(), static_cast<size_t>(got));
  }
  int code = Z_OK;
  const char* problem = gzerror(in.get(), &code);
  if (got < 0 || (code != Z_OK && code != Z_STREAM_END))
    throw Error(file.string() + " is damaged: " + problem);
  return text;
}

}  // namespace harness::trace
