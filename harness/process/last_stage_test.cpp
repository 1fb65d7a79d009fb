#include "harness/process/last_stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"

namespace harness {
namespace {

std::string slot(std::string text) {
  text.resize(256, '\0');
  return text;
}

TEST(LastStage, NamesEveryThreadThatEnteredOne) {
  const TempDir dir;
  const auto file = dir.path() / "last_stage.rank0.bin";
  write_bytes(file, slot("12: train.step > train.forward ; nsa.gate") + slot("") +
                        slot("15: train.backward"));
  EXPECT_EQ(last_stage(file), "12: train.step > train.forward ; nsa.gate; 15: train.backward");
}

TEST(LastStage, NoRecordAndNoStageReportNothing) {
  const TempDir dir;
  EXPECT_EQ(last_stage(dir.path() / "none.bin"), "");
  EXPECT_EQ(last_stage(dir.path()), "") << "a folder is no record";
  write_bytes(dir.path() / "a.bin", slot("") + slot(""));
  EXPECT_EQ(last_stage(dir.path() / "a.bin"), "");
  write_bytes(dir.path() / "b.bin", "");
  EXPECT_EQ(last_stage(dir.path() / "b.bin"), "");
}

TEST(LastStage, ForeignBytesStayPrintableAndShort) {
  const TempDir dir;
  const auto file = dir.path() / "hostile.bin";
  std::string bytes;
  for (int i = 0; i < 16; ++i) bytes += std::string(256, i % 2 == 0 ? '\x1b' : 'x');
  write_bytes(file, bytes);
  const std::string text = last_stage(file);
  EXPECT_LT(text.size(), 2500u);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  write_bytes(file, std::string(1 << 20, 'x'));
  EXPECT_EQ(last_stage(file), "") << "larger than any record";
}

}  // namespace
}  // namespace harness
