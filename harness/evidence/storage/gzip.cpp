#include "harness/evidence/storage/gzip.h"

#define ZLIB_CONST  // zlib only reads what it is given
#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>

#include "harness/evidence/error.h"
#include "harness/schema/error.h"

namespace harness {
namespace {

constexpr int kGzipWindow = 15 + 16;  // the largest window; 16 asks for gzip's header and sum
constexpr int kMemory = 8;            // zlib's default
constexpr size_t kChunk = size_t{1} << 16;

/// Gives zlib the next part of `in`; its counts are 32 bits wide.
void feed(z_stream& stream, std::string_view& in) {
  if (stream.avail_in > 0 || in.empty()) return;
  const size_t part = std::min<size_t>(in.size(), std::numeric_limits<uInt>::max());
  stream.next_in = reinterpret_cast<const Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(part);
  in.remove_prefix(part);
}

}  // namespace

bool is_gzip(std::string_view bytes) { return bytes.starts_with("\x1f\x8b"); }

std::string gzip(std::string_view bytes) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, kGzipWindow, kMemory,
                   Z_DEFAULT_STRATEGY) != Z_OK)
    throw Error("zlib could not start: no memory");
  std::string packed;
  std::array<char, kChunk> out{};
  int status = Z_OK;
  while (status != Z_STREAM_END) {
    feed(stream, bytes);
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = kChunk;
    status = deflate(&stream, bytes.empty() ? Z_FINISH : Z_NO_FLUSH);
    packed.append(out.data(), kChunk - stream.avail_out);
  }
  deflateEnd(&stream);
  return packed;
}

std::string gunzip(std::string_view packed, const std::string& name, uint64_t limit) {
  z_stream stream{};
  if (inflateInit2(&stream, kGzipWindow) != Z_OK) throw Error("zlib could not start: no memory");
  std::string content, problem;
  std::array<char, kChunk> out{};
  int status = Z_OK;
  while (status == Z_OK && problem.empty()) {
    feed(stream, packed);
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = kChunk;
    status = inflate(&stream, Z_NO_FLUSH);
    content.append(out.data(), kChunk - stream.avail_out);
    if (content.size() > limit)
      problem = "unpacks to more than " + std::to_string(limit >> 20) + " MiB";
  }
  if (problem.empty() && status == Z_BUF_ERROR) problem = "the archive is cut off before its end";
  if (problem.empty() && status != Z_STREAM_END)
    problem = "is no whole gzip archive: it is damaged";
  if (problem.empty() && (stream.avail_in > 0 || !packed.empty()))
    problem = "has bytes behind its end";
  inflateEnd(&stream);
  if (!problem.empty()) throw EvidenceError(name, problem);
  return content;
}

}  // namespace harness
