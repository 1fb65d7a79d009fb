#include "harness/evidence/storage/xz.h"

#include <lzma.h>

#include <array>

#include "harness/evidence/error.h"
#include "harness/schema/error.h"

namespace harness {
namespace {

constexpr uint32_t kPreset = 6 | LZMA_PRESET_EXTREME;  // a dictionary of 8 MiB: 94 MiB to pack
constexpr uint64_t kUnpackMemory = uint64_t{1} << 30;  // to unpack what others packed
constexpr size_t kPart = size_t{1} << 16;

struct Stream {
  lzma_stream state = LZMA_STREAM_INIT;
  std::array<uint8_t, kPart> out{};

  explicit Stream(std::string_view bytes) {
    state.next_in = reinterpret_cast<const uint8_t*>(bytes.data());
    state.avail_in = bytes.size();
  }
  ~Stream() { lzma_end(&state); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// The next step; what it makes is added to `to`.
  lzma_ret code(std::string& to) {
    state.next_out = out.data();
    state.avail_out = out.size();
    const lzma_ret status = lzma_code(&state, LZMA_FINISH);
    to.append(reinterpret_cast<const char*>(out.data()), out.size() - state.avail_out);
    return status;
  }
};

}  // namespace

bool is_xz(std::string_view bytes) { return bytes.starts_with("\xfd\x37zXZ"); }

std::string xz(std::string_view bytes) {
  Stream stream(bytes);
  if (lzma_easy_encoder(&stream.state, kPreset, LZMA_CHECK_CRC64) != LZMA_OK)
    throw Error("liblzma could not start: no memory");
  std::string packed;
  lzma_ret status = LZMA_OK;
  while (status == LZMA_OK) status = stream.code(packed);
  if (status != LZMA_STREAM_END) throw Error("liblzma could not compress: no memory");
  return packed;
}

std::string unxz(std::string_view packed, const std::string& name, uint64_t limit) {
  Stream stream(packed);
  if (lzma_stream_decoder(&stream.state, kUnpackMemory, 0) != LZMA_OK)
    throw Error("liblzma could not start: no memory");
  std::string content;
  lzma_ret status = LZMA_OK;
  while (status == LZMA_OK && content.size() <= limit) status = stream.code(content);
  if (content.size() > limit)
    throw EvidenceError(name, "unpacks to more than " + std::to_string(limit >> 20) + " MiB");
  if (status == LZMA_BUF_ERROR) throw EvidenceError(name, "the archive is cut off before its end");
  if (status != LZMA_STREAM_END) throw EvidenceError(name, "is no whole xz archive: it is damaged");
  if (stream.state.avail_in > 0) throw EvidenceError(name, "has bytes behind its end");
  return content;
}

}  // namespace harness
