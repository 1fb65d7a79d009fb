#include "harness/provenance/gpu/xid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace harness {
namespace {

TEST(Xid, ErrorsAreCountedByCardAndCode) {
  const auto found = xid_errors(
      "<6>[    1.0] eth0: link up\n"
      "<4>[   77.2] NVRM: Xid (PCI:0000:3b:00): 31, pid=71, name=python, MMU fault\n"
      "<4>[   78.9] NVRM: Xid (PCI:0000:5e:00): 31, pid=72, name=a\n"
      "<4>[   99.1] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
      "<4>[  100.0] NVRM: Xid (PCI:0000:3b:00): 31, pid=73, name=other");
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].bus, "0000:3b:00");
  EXPECT_EQ(found[0].code, 31);
  EXPECT_EQ(found[0].count, 2);
  EXPECT_EQ(found[0].last, "pid=73, name=other");
  EXPECT_EQ(found[1].bus, "0000:5e:00");
  EXPECT_EQ(found[2].code, 79);
  EXPECT_EQ(found[2].last, "GPU has fallen off the bus.");
}

TEST(Xid, OtherLinesAreNone) {
  EXPECT_TRUE(xid_errors("").empty());
  EXPECT_TRUE(xid_errors("\n\n").empty());
  EXPECT_TRUE(xid_errors("NVRM: Xid (PCI:0000:3b:00").empty());
  EXPECT_TRUE(xid_errors("NVRM: Xid (PCI:0000:3b:00): many").empty());
  EXPECT_TRUE(xid_errors("NVRM: loading NVIDIA UNIX x86_64 Kernel Module").empty());
}

TEST(Xid, TheLogIsReadOrReportsWhyNot) {
  const KernelLog log = read_kernel_log();
  EXPECT_NE(log.text.empty(), log.problem.empty());
}

}  // namespace
}  // namespace harness
