#include "harness/preflight/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"

namespace harness {
namespace {

using testing::HasSubstr;
using State = DoctorRow::State;

DoctorRow find(const std::vector<DoctorRow>& rows, const std::string& what) {
  for (const DoctorRow& row : rows)
    if (row.what == what) return row;
  throw std::runtime_error("no row " + what);
}

TEST(Doctor, EveryRowReportsSomethingAndEveryFaultItsRemedy) {
  TempDir dir;
  const auto rows = doctor(dir.path(), dir.path());
  EXPECT_GE(rows.size(), 9U);
  for (const DoctorRow& row : rows) {
    EXPECT_NE(row.found, "") << row.what;
    EXPECT_EQ(row.remedy.empty(), row.state == State::kOk) << row.what;
  }
}

TEST(Doctor, MissingProgramsAreAProblem) {
  TempDir dir;
  const auto rows = doctor(dir.path(), dir.path());
  EXPECT_EQ(find(rows, "programs").state, State::kProblem);
  EXPECT_THAT(find(rows, "programs").found, HasSubstr("nsa-worker"));
  EXPECT_EQ(find(rows, "build id").state, State::kProblem);
  EXPECT_EQ(doctor_exit(rows), 3);
}

TEST(Doctor, LeftoversAreNamed) {
  TempDir dir;
  EXPECT_THAT(find(doctor(dir.path(), dir.path()), "leftovers").found,
              testing::Not(HasSubstr(dir.path().string())));
  write_bytes(dir / "STOP", "");
  write_bytes(dir / "x.part.part", "");
  const DoctorRow row = find(doctor(dir.path(), dir.path()), "leftovers");
  EXPECT_EQ(row.state, State::kWarning);
  EXPECT_THAT(row.found, testing::AllOf(HasSubstr("STALE_LEFTOVERS"), HasSubstr("STOP"),
                                        HasSubstr("x.part.part")));
}

State state_of(const GpuFacts& gpu, const std::string& what) {
  return find(gpu_rows(gpu), "GPU 0" + what).state;
}

TEST(Doctor, EveryFaultOfACardHasItsRow) {
  GpuFacts healthy;
  healthy.memory_used_mib = 0;
  healthy.pcie_width = healthy.max_pcie_width = 16;
  healthy.ecc = true;
  healthy.ecc_uncorrected = healthy.throttle_bits = 0;
  for (const DoctorRow& each : gpu_rows(healthy)) EXPECT_EQ(each.state, State::kOk) << each.what;
  GpuFacts narrow = healthy, broken = healthy, hot = healthy, shared = healthy;
  narrow.pcie_width = 4;
  broken.ecc_uncorrected = 2;
  hot.throttle_bits = 0x20;
  shared.processes.push_back({.pid = 71, .mib = 900, .name = "python"});
  EXPECT_EQ(state_of(narrow, " PCIe"), State::kWarning);
  EXPECT_EQ(state_of(broken, " ECC"), State::kProblem);
  EXPECT_EQ(state_of(hot, " clocks"), State::kWarning);
  EXPECT_EQ(state_of(shared, ""), State::kWarning);
  EXPECT_THAT(find(gpu_rows(shared), "GPU 0").found, HasSubstr("pid 71 python 900 MiB"));
}

TEST(Doctor, ErrorsOfCardsInTheKernelLogAreReported) {
  EXPECT_EQ(xid_row({"eth0: link up\n", ""}).state, State::kOk);
  const DoctorRow found = xid_row({"NVRM: Xid (PCI:0000:3b:00): 79, fallen off the bus\n", ""});
  EXPECT_EQ(found.state, State::kWarning);
  EXPECT_EQ(found.found, "Xid 79 at 0000:3b:00, 1 times, last: fallen off the bus");
  EXPECT_THAT(xid_row({"NVRM: Xid (PCI:0): 43, name=\x1b[31mred", ""}).found,
              testing::Not(HasSubstr("\x1b")));
  const DoctorRow unknown = xid_row({"", "Operation not permitted"});
  EXPECT_EQ(unknown.state, State::kWarning) << "not known is not good";
  EXPECT_THAT(unknown.found, HasSubstr("not known"));
}

TEST(Doctor, ACardBelowItsKindIsReported) {
  EXPECT_EQ(ceiling_row("copy", 4000, 4240, "GB/s").state, State::kOk);
  EXPECT_EQ(ceiling_row("copy", 3000, 4240, "GB/s").state, State::kWarning);
  EXPECT_EQ(ceiling_row("copy", std::nan(""), 4240, "GB/s").state, State::kWarning);
  EXPECT_THAT(ceiling_row("copy", 3000, std::nullopt, "GB/s").found, HasSubstr("no norm"));
}

TEST(Doctor, UnwritableFolderIsAProblem) {
  EXPECT_EQ(find(doctor("/proc/self/none", "/"), "output folder").state, State::kProblem);
}

TEST(Doctor, OkRowsMakeExitZero) {
  EXPECT_EQ(doctor_exit({{State::kOk, "a", "b", ""}, {State::kWarning, "a", "b", "c"}}), 0);
}

}  // namespace
}  // namespace harness
