#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <new>
#include <system_error>

#include "nsa/tensor_file/header.h"
#include "nsa/tensor_file/replaced_file.h"
#include "nsa/tensor_file/tensor_file.h"

namespace nsa::tensor_file {
namespace {

static_assert(std::endian::native == std::endian::little);

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& what) {
  throw TensorFileError(path.string() + ": " + what);
}

uint64_t read_header_size(std::ifstream& in, uint64_t file_bytes,
                          const std::filesystem::path& path) {
  uint64_t size = 0;
  if (file_bytes < 8 || !in.read(reinterpret_cast<char*>(&size), 8))
    fail(path, "truncated: " + std::to_string(file_bytes) + " bytes, the header size alone is 8");
  if (size > kMaxHeaderBytes)
    fail(path, "header of " + std::to_string(size) + " bytes is larger than the limit of " +
                   std::to_string(kMaxHeaderBytes));
  if (size > file_bytes - 8)
    fail(path, "truncated: header of " + std::to_string(size) + " bytes in a file of " +
                   std::to_string(file_bytes));
  return size;
}

/// Wide types first, then by name: every tensor starts at a multiple of its element size.
std::vector<std::string> aligned_order(const TensorFile& file) {
  std::vector<std::string> names;
  for (const auto& [name, _] : file.tensors) names.push_back(name);
  std::ranges::stable_sort(names, std::ranges::greater(), [&](const std::string& name) {
    return size_bytes(file.tensors.at(name).dtype);
  });
  return names;
}

void check_tensor(const std::filesystem::path& path, const std::string& name,
                  const FileTensor& tensor) {
  if (name == "__metadata__") fail(path, "'__metadata__': not a name for a tensor");
  uint64_t bytes = size_bytes(tensor.dtype);
  for (const int64_t length : tensor.shape) {
    if (length < 0) fail(path, "'" + name + "': negative axis " + std::to_string(length));
    bytes *= static_cast<uint64_t>(length);
  }
  if (bytes != tensor.bytes.size())
    fail(path, "'" + name + "': the shape needs " + std::to_string(bytes) + " bytes, there are " +
                   std::to_string(tensor.bytes.size()));
}

}  // namespace

TensorFile read_tensor_file(const std::filesystem::path& path) {
  std::error_code none;
  const std::filesystem::file_status status = std::filesystem::status(path, none);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    fail(path, "cannot be read: not a regular file");  // before opening: a pipe would wait
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) fail(path, std::string("cannot be read: ") + std::strerror(errno));
  const auto file_bytes = static_cast<uint64_t>(in.tellg());
  in.seekg(0);
  const uint64_t header_bytes = read_header_size(in, file_bytes, path);

  TensorFile file;
  try {
    std::string text(header_bytes, '\0');
    if (!in.read(text.data(), static_cast<std::streamsize>(header_bytes)))
      fail(path, std::string("header cannot be read: ") + std::strerror(errno));
    Header header = parse_header(text, file_bytes - 8 - header_bytes);
    file.metadata = std::move(header.metadata);
    for (auto& [name, entry] : header.entries) {
      FileTensor& tensor = file.tensors[name];
      tensor = {entry.dtype, std::move(entry.shape),
                std::vector<std::byte>(entry.end - entry.begin)};
      in.seekg(static_cast<std::streamoff>(8 + header_bytes + entry.begin));
      in.read(reinterpret_cast<char*>(tensor.bytes.data()),
              static_cast<std::streamsize>(tensor.bytes.size()));
      if (!in) fail(path, "'" + name + "': cannot be read: " + std::strerror(errno));
    }
  } catch (const std::invalid_argument& error) {
    fail(path, error.what());
  } catch (const std::bad_alloc&) {
    fail(path, std::to_string(file_bytes) + " bytes do not fit in memory");
  }
  return file;
}

void write_tensor_file(const std::filesystem::path& path, const TensorFile& file) {
  Header header{file.metadata, {}};
  const std::vector<std::string> order = aligned_order(file);
  uint64_t next = 0;
  for (const std::string& name : order) {
    const FileTensor& tensor = file.tensors.at(name);
    check_tensor(path, name, tensor);
    header.entries[name] = {tensor.dtype, tensor.shape, next, next + tensor.bytes.size()};
    next += tensor.bytes.size();
  }
  std::string text;
  try {
    text = header_text(header);
  } catch (const std::exception& error) {
    fail(path, std::string("names and metadata must be UTF-8: ") + error.what());
  }
  const uint64_t size = text.size();
  try {
    ReplacedFile out(path);
    out.write(&size, sizeof size);
    out.write(text.data(), text.size());
    for (const std::string& name : order) {
      const std::vector<std::byte>& bytes = file.tensors.at(name).bytes;
      out.write(bytes.data(), bytes.size());
    }
    out.commit();
  } catch (const std::system_error& error) {
    fail(path, error.what());
  }
}

}  // namespace nsa::tensor_file
