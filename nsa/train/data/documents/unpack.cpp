#include <zlib.h>
#include <zstd.h>

#include <vector>

#include "nsa/program/input_error.h"
#include "nsa/train/data/documents/byte_source.h"

namespace nsa::train {
namespace {

constexpr size_t kUnpackChunk = size_t{1} << 16;
constexpr const char* kPackedRemedy = "; fetch the file again";

[[noreturn]] void fail_damaged(const std::string& name, const char* format, const char* reason) {
  throw InputError(name + ": damaged " + format + " data (" + (reason ? reason : "no reason") +
                   ")" + kPackedRemedy);
}

[[noreturn]] void fail_truncated(const std::string& name, const char* format) {
  throw InputError(name + ": the " + format + " data end early, the file is truncated" +
                   kPackedRemedy);
}

class Gzip : public ByteSource {
 public:
  Gzip(ByteSource& packed, std::string name) : packed_(packed), name_(std::move(name)) {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    if (inflateInit2(&stream_, kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~Gzip() override { inflateEnd(&stream_); }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

  size_t read(std::span<char> out) override {
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    while (stream_.avail_out == out.size()) {
      if (stream_.avail_in == 0 && !refill()) {
        if (inside_) fail_truncated(name_, "gzip");
        return 0;
      }
      inflate_some();
    }
    return out.size() - stream_.avail_out;
  }

 private:
  bool refill() {
    const size_t count = packed_.read(buffer_);
    stream_.next_in = reinterpret_cast<Bytef*>(buffer_.data());
    stream_.avail_in = static_cast<uInt>(count);
    return count > 0;
  }

  void inflate_some() {
    inside_ = true;
    const int status = inflate(&stream_, Z_NO_FLUSH);
    if (status == Z_STREAM_END) {  // another member may follow
      inside_ = false;
      inflateReset(&stream_);
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      fail_damaged(name_, "gzip", stream_.msg);
    }
  }

  ByteSource& packed_;
  std::string name_;
  std::vector<char> buffer_ = std::vector<char>(kUnpackChunk);
  z_stream stream_{};
  bool inside_ = true;  ///< a member; an empty file holds none and is truncated
};

class Zstd : public ByteSource {
 public:
  Zstd(ByteSource& packed, std::string name)
      : packed_(packed), name_(std::move(name)), stream_(ZSTD_createDStream(), ZSTD_freeDStream) {
    if (!stream_) throw std::bad_alloc();
  }

  size_t read(std::span<char> out) override {
    ZSTD_outBuffer target{out.data(), out.size(), 0};
    while (target.pos == 0) {
      if (in_.pos == in_.size && !flushing_ && !refill()) {
        if (inside_) fail_truncated(name_, "zstd");
        return 0;
      }
      const size_t status = ZSTD_decompressStream(stream_.get(), &target, &in_);
      if (ZSTD_isError(status) != 0) fail_damaged(name_, "zstd", ZSTD_getErrorName(status));
      inside_ = status != 0;
      flushing_ = inside_ && target.pos == target.size;  // there may be more without new input
    }
    return target.pos;
  }

 private:
  bool refill() {
    in_ = {buffer_.data(), packed_.read(buffer_), 0};
    return in_.size > 0;
  }

  ByteSource& packed_;
  std::string name_;
  std::vector<char> buffer_ = std::vector<char>(kUnpackChunk);
  std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  bool inside_ = true, flushing_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> unpack_gzip(ByteSource& packed, const std::string& name) {
  return std::make_unique<Gzip>(packed, name);
}

std::unique_ptr<ByteSource> unpack_zstd(ByteSource& packed, const std::string& name) {
  return std::make_unique<Zstd>(packed, name);
}

}  // namespace nsa::train
