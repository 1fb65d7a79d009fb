#include "nsa/train/data/documents/parquet_documents.h"

#include <dlfcn.h>

#include <array>
#include <fstream>
#include <string_view>

#include "nsa/program/input_error.h"

namespace nsa::train {
namespace {

constexpr std::string_view kMagic = "PAR1", kEncrypted = "PARE";
constexpr const char* kFetchAgain = "; fetch the file again";

struct Ends {
  std::string first, last;  ///< four bytes each; empty for a shorter file
};

Ends ends_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::array<char, 4> first{}, last{};
  in.read(first.data(), first.size());
  in.seekg(-4, std::ios::end);
  in.read(last.data(), last.size());
  if (!in) return {};
  return {{first.begin(), first.end()}, {last.begin(), last.end()}};
}

/// Faults that are found without the library, each with its own message.
void require_whole(const std::filesystem::path& file) {
  const std::string name = file.string();
  std::error_code error;
  const auto size = std::filesystem::file_size(file, error);
  if (error || !std::ifstream(file)) throw InputError("cannot read " + name);
  if (size == 0) throw InputError(name + " is empty (0 bytes)" + kFetchAgain);
  const Ends ends = ends_of(file);
  if (ends.first == kEncrypted || (ends.first == kMagic && ends.last == kEncrypted))
    throw InputError(name + " is an encrypted Parquet file; decrypt it first");
  if (ends.first != kMagic)
    throw InputError(name + " is no Parquet file: it must begin with PAR1; name text .txt or " +
                     ".jsonl, or" + std::string(kFetchAgain).substr(1));
  if (ends.last != kMagic)
    throw InputError(name + " is truncated: " + std::to_string(size) +
                     " bytes that do not end with PAR1" + kFetchAgain);
}

/// The module beside the programs' folder; never unloaded.
ReadParquet* open_module() {
  static ReadParquet* const entry = [] {
    const auto program = std::filesystem::read_symlink("/proc/self/exe");
    const auto module = program.parent_path().parent_path() / "lib" / "libnsa_parquet.so";
    void* library = dlopen(module.c_str(), RTLD_NOW | RTLD_LOCAL);
    void* symbol = library ? dlsym(library, kParquetEntry) : nullptr;
    if (symbol) return reinterpret_cast<ReadParquet*>(symbol);
    const char* reason = dlerror();
    throw InputError("cannot read Parquet here: " + std::string(reason ? reason : "no entry") +
                     "; put the folder of Python's pyarrow " NSA_PYARROW_VERSION
                     " into LD_LIBRARY_PATH, or give .jsonl files");
  }();
  return entry;
}

}  // namespace

bool looks_like_parquet(const std::filesystem::path& file) {
  const Ends ends = ends_of(file);
  return ends.first == kMagic && ends.last == kMagic;
}

DocumentCounts for_each_parquet_document(const std::filesystem::path& file,
                                         const std::string& column, const TakeDocument& take) {
  require_whole(file);
  return open_module()(file, column, take);
}

}  // namespace nsa::train
