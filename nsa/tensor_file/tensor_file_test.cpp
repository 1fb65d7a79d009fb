#include "nsa/tensor_file/tensor_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "nsa/tensor_file/header.h"

namespace nsa::tensor_file {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::filesystem::path path_for(const std::string& name) {
  return std::filesystem::path(::testing::TempDir()) / ("tensor_file_" + name);
}

/// A file with this JSON header and `data` bytes of zeros.
std::filesystem::path write_raw(const std::string& header, size_t data) {
  const std::filesystem::path path = path_for("raw.safetensors");
  std::ofstream out(path, std::ios::binary);
  const uint64_t size = header.size();
  out.write(reinterpret_cast<const char*>(&size), 8);
  out << header << std::string(data, '\0');
  return path;
}

std::string error_of(const std::filesystem::path& path) {
  try {
    read_tensor_file(path);
  } catch (const TensorFileError& error) {
    return error.what();
  }
  return "";
}

std::string error_of(const std::string& header, size_t data) {
  return error_of(write_raw(header, data));
}

TEST(TensorFile, RoundTrip) {
  TensorFile file;
  file.metadata = {{"config", R"({"name": "x"})"}, {"note", "line\nbreak \"quoted\" \u00fc"}};
  file.tensors["f64"] = from_doubles({2, 2}, {1.5, -0.0, 1e300, 0.1}, Dtype::kF64);
  file.tensors["bf16"] = from_doubles({3}, {1, 2, 3}, Dtype::kBF16);
  file.tensors["i64"] = from_integers({1}, {INT64_MIN}, Dtype::kI64);
  file.tensors["i32"] = from_integers({2}, {-1, 7}, Dtype::kI32);
  file.tensors["none"] = from_doubles({0, 4}, {}, Dtype::kF32);
  file.tensors["scalar"] = from_doubles({}, {4}, Dtype::kF32);
  file.tensors["flags"] = from_doubles({3}, {1, 0, 1}, Dtype::kBool);
  const auto path = path_for("round_trip.safetensors");
  write_tensor_file(path, file);

  const TensorFile back = read_tensor_file(path);
  EXPECT_EQ(back.metadata, file.metadata);
  ASSERT_EQ(back.tensors.size(), file.tensors.size());
  for (const auto& [name, tensor] : file.tensors) {
    EXPECT_EQ(back.tensors.at(name).dtype, tensor.dtype) << name;
    EXPECT_EQ(back.tensors.at(name).shape, tensor.shape) << name;
    EXPECT_EQ(back.tensors.at(name).bytes, tensor.bytes) << name;
  }
  EXPECT_EQ(to_integers(back.tensors.at("i64")), std::vector<int64_t>{INT64_MIN});
  EXPECT_EQ(to_integers(back.tensors.at("i32")), (std::vector<int64_t>{-1, 7}));
  EXPECT_EQ(to_doubles(back.tensors.at("bf16")), (std::vector<double>{1, 2, 3}));
}

TEST(TensorFile, EmptyFileOfNoTensors) {
  const auto path = path_for("empty.safetensors");
  write_tensor_file(path, {});
  EXPECT_TRUE(read_tensor_file(path).tensors.empty());
}

TEST(TensorFile, Truncation) {
  TensorFile file;
  file.tensors["x"] = from_doubles({4}, {1, 2, 3, 4}, Dtype::kF64);
  const auto path = path_for("cut.safetensors");
  write_tensor_file(path, file);
  // Every shorter file is refused, whatever is missing.
  for (auto size = std::filesystem::file_size(path); size-- > 0;) {
    std::filesystem::resize_file(path, size);
    EXPECT_THAT(error_of(path), HasSubstr("cut.safetensors: ")) << size;
  }
  EXPECT_THAT(error_of(path), HasSubstr("truncated: 0 bytes"));
  EXPECT_THAT(error_of(path_for("nowhere")), HasSubstr("nowhere: cannot be read: No such file"));
  EXPECT_THAT(error_of(std::filesystem::path(::testing::TempDir())), HasSubstr("cannot be read"));
}

TEST(TensorFile, OversizedHeader) {
  const auto path = path_for("big.safetensors");
  std::ofstream(path, std::ios::binary) << std::string(8, '\x7f') << "{}";
  EXPECT_THAT(error_of(path), HasSubstr("larger than the limit of 100000000"));
}

TEST(TensorFile, MalformedHeader) {
  EXPECT_THAT(error_of("", 0), HasSubstr("must begin with '{'"));
  EXPECT_THAT(error_of("[]", 0), HasSubstr("must begin with '{'"));
  EXPECT_THAT(error_of("{\"a\": ", 0), HasSubstr("header is not JSON"));
  EXPECT_THAT(error_of("{} x", 0), HasSubstr("header is not JSON"));
  EXPECT_THAT(error_of(R"({"a": 1})", 0), HasSubstr("'a': must be an object, got 1"));
  EXPECT_THAT(error_of(R"({"__metadata__": {"a": 1}})", 0),
              HasSubstr("'__metadata__.a': must be a text, got 1"));
  EXPECT_THAT(error_of(R"({"__metadata__": []})", 0),
              HasSubstr("'__metadata__': must be an object of texts"));
}

TEST(TensorFile, DuplicateKeys) {
  const std::string entry = R"({"dtype": "U8", "shape": [1], "data_offsets": [0, 1]})";
  EXPECT_THAT(error_of("{\"a\": " + entry + ", \"a\": " + entry + "}", 1),
              HasSubstr("raw.safetensors: 'a': duplicate key"));
  EXPECT_THAT(error_of(R"({"a": {"dtype": "U8", "dtype": "U8"}})", 1),
              HasSubstr("'dtype': duplicate key"));
}

TEST(TensorFile, BadEntries) {
  const auto with = [](const std::string& body) { return "{\"a\": {" + body + "}}"; };
  EXPECT_THAT(error_of(with(R"("dtype": "U8", "shape": [1])"), 1),
              HasSubstr("'a': data_offsets is missing"));
  EXPECT_THAT(error_of(with(R"("dtype": "F8", "shape": [1], "data_offsets": [0, 1])"), 1),
              AllOf(HasSubstr("'a': dtype must be"), HasSubstr("got \"F8\"")));
  EXPECT_THAT(error_of(with(R"("dtype": "U8", "shape": [-1], "data_offsets": [0, 1])"), 1),
              HasSubstr("'a': shape must hold whole numbers >= 0, got [-1]"));
  EXPECT_THAT(error_of(with(R"("dtype": "U8", "shape": [1.0], "data_offsets": [0, 1])"), 1),
              HasSubstr("'a': shape must hold whole numbers"));
  EXPECT_THAT(error_of(with(R"("dtype": "U8", "shape": 1, "data_offsets": [0, 1])"), 1),
              HasSubstr("'a': shape must be a list"));
  EXPECT_THAT(
      error_of(with(R"("dtype": "U8", "shape": [4294967296, 4294967296], "data_offsets": [0, 0])"),
               0),
      HasSubstr("'a': shape is too large"));
  EXPECT_THAT(error_of(with(R"("dtype": "U8", "shape": [1], "data_offsets": [0, 1], "x": 0)"), 1),
              HasSubstr("'a': unknown key 'x'"));
  EXPECT_THAT(error_of(with(R"("dtype": "U8", "shape": [1], "data_offsets": [0])"), 1),
              HasSubstr("'a': data_offsets must be two whole numbers"));
}

TEST(TensorFile, BadOffsets) {
  const auto one = [](const std::string& name, int size, int begin, int end) {
    return "\"" + name + R"(": {"dtype": "U8", "shape": [)" + std::to_string(size) +
           R"(], "data_offsets": [)" + std::to_string(begin) + ", " + std::to_string(end) + "]}";
  };
  EXPECT_THAT(error_of("{" + one("a", 2, 0, 2) + "}", 1),
              HasSubstr("'a': data_offsets [0,2] are outside the 1 bytes"));
  EXPECT_THAT(error_of("{" + one("a", 2, 3, 1) + "}", 4), HasSubstr("'a': data_offsets [3,1]"));
  EXPECT_THAT(error_of("{" + one("a", 2, 0, 3) + "}", 3),
              HasSubstr("'a': data_offsets span 3 bytes, shape [2] of \"U8\" needs 2"));
  EXPECT_THAT(error_of("{" + one("a", 2, 0, 2) + "," + one("b", 2, 1, 3) + "}", 3),
              HasSubstr("'b': overlaps 'a'"));
  EXPECT_THAT(error_of("{" + one("a", 1, 0, 1) + "," + one("b", 1, 2, 3) + "}", 3),
              HasSubstr("'b': begins at byte 2, bytes from 1 belong to no tensor"));
  EXPECT_THAT(error_of("{" + one("a", 1, 0, 1) + "}", 3),
              HasSubstr("2 bytes behind the last tensor"));
  EXPECT_EQ(error_of("{" + one("a", 1, 0, 1) + "," + one("b", 2, 1, 3) + "}", 3), "");
}

TEST(TensorFile, WriterRefusesUnsupportedTensors) {
  TensorFile file;
  file.tensors["x"] = {Dtype::kF64, {2}, std::vector<std::byte>(8)};
  try {
    write_tensor_file(path_for("bad.safetensors"), file);
    FAIL() << "nothing was thrown";
  } catch (const TensorFileError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'x': the shape needs 16 bytes, there are 8"));
  }
  EXPECT_THROW(write_tensor_file("/nowhere/x.safetensors", {}), TensorFileError);
  TensorFile not_text;
  not_text.metadata["config"] = "\xff";
  EXPECT_THROW(write_tensor_file(path_for("utf8.safetensors"), not_text), TensorFileError);
  EXPECT_THROW(from_doubles({3}, {1, 2}, Dtype::kF64), std::invalid_argument);
  EXPECT_THROW(from_integers({1}, {int64_t{1} << 40}, Dtype::kI32), std::invalid_argument);
}

}  // namespace
}  // namespace nsa::tensor_file
