#include "harness/builtin/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/evidence/files.h"
#include "harness/evidence/temp_dir.h"

namespace harness {
namespace {

using testing::HasSubstr;
using State = DoctorRow::State;

DoctorRow find(const std::vector<DoctorRow>& rows, const std::string& what) {
  for (const DoctorRow& row : rows)
    if (row.what == what) return row;
  throw std::runtime_error("no row " + what);
}

TEST(Doctor, EveryRowSaysSomethingAndEveryFaultItsRemedy) {
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

TEST(Doctor, UnwritableFolderIsAProblem) {
  EXPECT_EQ(find(doctor("/proc/self/none", "/"), "output folder").state, State::kProblem);
}

TEST(Doctor, OkRowsMakeExitZero) {
  EXPECT_EQ(doctor_exit({{State::kOk, "a", "b", ""}, {State::kWarning, "a", "b", "c"}}), 0);
}

}  // namespace
}  // namespace harness
