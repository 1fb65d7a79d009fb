#include "harness/evidence/storage/files.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/files/whole_file.h"
#include "base/hash/sha256.h"
#include "harness/schema/error.h"

namespace harness {
namespace {

[[noreturn]] void refuse_reading(const std::filesystem::path& path, int error) {
  throw Error("cannot read " + path.string() + ": " + std::strerror(error ? error : EIO));
}

}  // namespace

std::string read_bytes(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    throw Error("cannot read " + path.string() + ": " +
                (error ? error.message() : "it is not a regular file"));
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) refuse_reading(path, errno);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) refuse_reading(path, errno);
  return bytes;
}

std::string sha256_file(const std::filesystem::path& path) {
  try {
    return base::sha256_file(path);
  } catch (const std::runtime_error& error) {
    throw Error(error.what());
  }
}

void write_bytes(const std::filesystem::path& path, std::string_view bytes) {
  try {
    base::write_whole_file(path, bytes);
  } catch (const base::FileError& error) {
    throw Error(error.what() +
                std::string(error.code() == ENOSPC ? "; free disk space and use --resume" : ""));
  }
}

}  // namespace harness
