#include "nsa/train/data/corpus.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "base/hash/sha256.h"
#include "nsa/program/input_error.h"

namespace nsa::train {
namespace {

constexpr const char* kRemedy = "; remove the corpus and make it again (tools/corpus, or nsa-data)";

std::shared_ptr<const uint8_t[]> map_file(const std::filesystem::path& path, int64_t want_size) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    throw InputError("cannot read shard " + path.string() + ": " + std::strerror(errno) + kRemedy);
  struct stat facts{};
  const bool known = fstat(fd, &facts) == 0;
  if (!known || facts.st_size != want_size) {
    close(fd);
    throw InputError("shard " + path.string() + " has " +
                     std::to_string(known ? facts.st_size : -1) + " tokens, its manifest lists " +
                     std::to_string(want_size) + kRemedy);
  }
  void* memory = mmap(nullptr, static_cast<size_t>(want_size), PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  close(fd);
  if (memory == MAP_FAILED)
    throw InputError("cannot map shard " + path.string() + ": " + std::strerror(error));
  return {static_cast<const uint8_t*>(memory), [want_size](const uint8_t* p) {
            munmap(const_cast<uint8_t*>(p), static_cast<size_t>(want_size));
          }};
}

}  // namespace

Corpus Corpus::open(const std::filesystem::path& dir, const std::string& name,
                    const std::string& split) {
  Corpus corpus;
  corpus.manifest_ = read_manifest(dir, &corpus.manifest_sha256_);
  if (corpus.manifest_.name != name)
    throw InputError("the corpus at " + dir.string() + " is \"" + corpus.manifest_.name +
                     "\", asked for was \"" + name + "\"");
  for (const ShardFile& shard : corpus.manifest_.shards)
    if (shard.split == split) corpus.add_shard(dir / shard.file, shard);
  if (corpus.size_ == 0)
    throw InputError("corpus \"" + name + "\" at " + dir.string() + " has no tokens in split " +
                     split +
                     (split == "val" ? "; make the corpus again and keep more blocks out (nsa-data "
                                       "--val-every, smaller than now), or ask for no validation"
                                     : kRemedy));
  return corpus;
}

void Corpus::add_shard(const std::filesystem::path& path, const ShardFile& shard) {
  Mapping mapping{size_, map_file(path, shard.tokens), shard.tokens};
  const std::string have =
      base::sha256_hex({mapping.tokens.get(), static_cast<size_t>(mapping.size)});
  if (have != shard.sha256)
    throw InputError("shard " + path.string() + " has sha256 " + have + ", its manifest lists " +
                     shard.sha256 + kRemedy);
  shards_.push_back(std::move(mapping));
  size_ += shard.tokens;
}

void Corpus::read(int64_t position, std::span<uint8_t> out) const {
  if (position < 0 || position + static_cast<int64_t>(out.size()) > size_)
    throw std::out_of_range("Corpus::read: position " + std::to_string(position) + " + " +
                            std::to_string(out.size()) + " exceeds " + std::to_string(size_));
  auto shard = std::upper_bound(shards_.begin(), shards_.end(), position,
                                [](int64_t p, const Mapping& m) { return p < m.begin; });
  for (--shard; !out.empty(); ++shard) {
    const int64_t inside = position - shard->begin;
    const int64_t taken = std::min<int64_t>(shard->size - inside, static_cast<int64_t>(out.size()));
    std::copy_n(shard->tokens.get() + inside, taken, out.data());
    out = out.subspan(static_cast<size_t>(taken));
    position += taken;
  }
}

}  // namespace nsa::train
