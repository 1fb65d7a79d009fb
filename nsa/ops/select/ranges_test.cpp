#include "nsa/ops/select/ranges.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/testing/paths.h"

namespace nsa {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

at::Tensor ints(const std::vector<int32_t>& values, at::IntArrayRef shape) {
  return at::tensor(values, at::kInt).reshape(shape);
}
at::Tensor position(int64_t t) { return at::full({1}, t, at::kLong); }

std::vector<int32_t> flat(const at::Tensor& tensor) {
  const at::Tensor contiguous = tensor.contiguous();
  const int32_t* data = contiguous.const_data_ptr<int32_t>();
  return {data, data + contiguous.numel()};
}

/// All versions on one row, each equal to `want`.
void expect_row(const std::vector<int32_t>& ids, int64_t t, int64_t l,
                const std::vector<int32_t>& want) {
  const at::Tensor block_idx = ints(ids, {1, 1, static_cast<int64_t>(ids.size())});
  for (const RangesVersion version :
       {RangesVersion::kV1, RangesVersion::kV1Bulk, RangesVersion::kV2}) {
    EXPECT_EQ(flat(block_ranges(version, block_idx, position(t), l)), want) << to_string(version);
  }
}

TEST(Ranges, HandComputedRows) {
  expect_row({0, 1, 2, 5, 6, -1}, 100, 4, {0, 12, 20, 28, 0, 0, 0, 0, 0, 0, 0, 0});
  expect_row({0, 0, 1, 1, 2}, 9, 4, {0, 10, 0, 0, 0, 0, 0, 0, 0, 0});      // clamped to t + 1
  expect_row({3, 1, 4, 2, 6}, 31, 4, {12, 20, 24, 28, 0, 0, 0, 0, 0, 0});  // 1 and 2 are dropped
  expect_row({0, 9, 1}, 8, 4, {0, 8, 0, 0, 0, 0});     // 9 is out of reach and does not split
  expect_row({1, -7, 2}, 11, 4, {4, 12, 0, 0, 0, 0});  // nor does a negative id
  expect_row({-1, 0}, 0, 4, {0, 1, 0, 0});
  expect_row({-1, -1}, 5, 4, {0, 0, 0, 0});
  expect_row({2, 4, 6}, 27, 4, {8, 12, 16, 20, 24, 28});
  expect_row({2}, 7, 4, {0, 0});
  expect_row({2}, 8, 4, {8, 9});
  expect_row({INT32_MAX, INT32_MIN, 1}, 7, 64, {0, 0, 0, 0, 0, 0});
  expect_row({INT32_MAX - 2, 0}, 7, 1, {0, 1, 0, 0});
}

TEST(Ranges, NoIdsAndNoRowsGiveEmptyTensors) {
  const at::Tensor none = at::empty({2, 3, 2, 0}, at::kInt);
  const at::Tensor no_rows = at::empty({0, 3, 2, 4}, at::kInt);
  for (const RangesVersion version :
       {RangesVersion::kV1, RangesVersion::kV1Bulk, RangesVersion::kV2}) {
    EXPECT_EQ(block_ranges(version, none, at::arange(3), 4).sizes(),
              at::IntArrayRef({2, 3, 2, 0, 2}));
    EXPECT_EQ(block_ranges(version, no_rows, at::arange(3), 4).sizes(),
              at::IntArrayRef({0, 3, 2, 4, 2}));
  }
}

TEST(Ranges, VersionsAgreeOnRandomIds) {
  at::manual_seed(7);
  for (const int64_t width : {1, 2, 5, 16, 33}) {
    const at::Tensor ids = at::randint(-3, 20, {2, 64, 3, width}, at::kInt);
    const at::Tensor t = at::arange(64);
    const at::Tensor want = ranges_v1(ids, t, 4);
    EXPECT_TRUE(at::equal(want, ranges_v1_bulk(ids, t, 4)));
    EXPECT_TRUE(at::equal(want, ranges_v2(ids, t, 4)));
    const at::Tensor sorted = std::get<0>(ids.sort(-1));
    EXPECT_TRUE(at::equal(ranges_v1(sorted, t, 4), ranges_v2(sorted, t, 4)));
    const at::Tensor strided = ids.transpose(1, 2).contiguous().transpose(1, 2);
    EXPECT_TRUE(at::equal(want, ranges_v2(strided, t, 4)));
  }
}

TEST(Ranges, EachSequenceMayHaveItsOwnPosition) {
  const at::Tensor ids = ints({0, 1, 0, 1}, {2, 1, 1, 2});
  const at::Tensor t = at::tensor(std::vector<int64_t>{2, 5}).reshape({2, 1});
  EXPECT_EQ(flat(ranges_v2(ids, t, 4)), (std::vector<int32_t>{0, 3, 0, 0, 0, 6, 0, 0}));
  EXPECT_TRUE(at::equal(ranges_v1(ids, t, 4), ranges_v2(ids, t, 4)));
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "accepted";
}

TEST(Ranges, BadArgumentsAreNamed) {
  const at::Tensor ids = at::zeros({2, 3, 1, 4}, at::kInt);
  EXPECT_THAT(error_of([&] { ranges_v2(ids.to(at::kLong), at::arange(3), 4); }),
              HasSubstr("nsa::ranges_v2: block_idx must be Int, got Long"));
  EXPECT_THAT(error_of([&] { ranges_v1(ids, at::arange(4), 4); }),
              HasSubstr("nsa::ranges_v1: t must be broadcastable to [2, 3], the leading sizes of "
                        "block_idx, got shape [4]"));
  EXPECT_THAT(error_of([&] { ranges_v1_bulk(ids, at::arange(3), 0); }),
              HasSubstr("nsa::ranges_v1_bulk: sel_block_size must be at least 1, got 0"));
  EXPECT_THAT(error_of([&] { ranges_v2(ids[0][0], at::arange(3), 4); }),
              HasSubstr("block_idx must be of shape [*, Hkv, K]"));
}

/// The recorded cases: each holds its ids, its positions and the true ranges.
TEST(Ranges, RecordedCases) {
  std::ifstream file(base::source_dir() + "/configs/ranges/cases.jsonl");
  ASSERT_TRUE(file) << "configs/ranges/cases.jsonl";
  int historical = 0, others = 0;
  for (std::string line; std::getline(file, line);) {
    const Json c = Json::parse(line);
    SCOPED_TRACE(c.at("id").get<std::string>());
    const auto shape = c.at("shape").get<std::vector<int64_t>>();  // [B, S, Hkv, K]
    const at::Tensor ids = ints(c.at("block_idx").get<std::vector<int32_t>>(), shape);
    const at::Tensor t = at::tensor(c.at("t").get<std::vector<int64_t>>());
    const int64_t l = c.at("sel_block_size").get<int64_t>();
    const at::Tensor v1 = ranges_v1(ids, t, l);
    EXPECT_EQ(flat(v1), c.at("ranges").get<std::vector<int32_t>>());
    EXPECT_TRUE(at::equal(v1, ranges_v1_bulk(ids, t, l)));
    EXPECT_TRUE(at::equal(v1, ranges_v2(ids, t, l)));
    ++(c.at("historical").get<bool>() ? historical : others);
  }
  EXPECT_EQ(historical, 47);  // five of them run on CUDA too: 52 in the historical count
  EXPECT_GE(others, 8);
}

}  // namespace
}  // namespace nsa
