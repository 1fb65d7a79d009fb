#include "harness/fault_injection/injected_faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/testing/paths.h"
#include "harness/evidence/derive/findings.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/phases/fake_program.h"

namespace harness {
namespace {

using testing::HasSubstr;

const InjectedFault& fault(const std::string& id) {
  for (const InjectedFault& each : injected_faults())
    if (each.id == id) return each;
  throw std::runtime_error("no fault " + id);
}

TEST(InjectedFaults, IdsAreUniqueAndEveryCodeHasItsAdvice) {
  std::set<std::string> ids;
  for (const InjectedFault& each : injected_faults()) {
    EXPECT_TRUE(ids.insert(each.id).second) << each.id;
    EXPECT_NE(each.what, "") << each.id;
    if (each.code == "NOT_EVALUATED" || each.code == "EVIDENCE_TAMPERED") continue;  // no findings
    EXPECT_NE(advice_for(each.code).cause, "not known to this program") << each.code;
  }
}

TEST(InjectedFaults, EveryRowCanBeInjectedAndHasItsControl) {
  for (const InjectedFault& each : injected_faults()) {
    EXPECT_TRUE(each.inject) << each.id;
    EXPECT_TRUE(each.control) << each.id;
  }
}

TEST(InjectedFaults, AWorkerThatAcceptsEveryNameIsSeen) {
  const TempDir dir;
  write_fake_worker(dir / "bin");
  const std::string accepting = "#!/bin/sh\nexit 0\n";
  write_bytes(dir / "bin/nsa-worker", accepting);
  std::filesystem::permissions(dir / "bin/nsa-worker", std::filesystem::perms::owner_all);
  const Injected injected = fault("P08").inject({.bin_dir = dir / "bin"});
  EXPECT_FALSE(injected.as_wanted);
  EXPECT_THAT(injected.seen, HasSubstr("unknown switch: accepted"));
}

TEST(InjectedFaults, AWorkerThatFailsForAnotherReasonIsNotACatch) {
  const TempDir dir;
  write_fake_worker(dir / "bin");
  write_bytes(dir / "bin/nsa-worker", "#!/bin/sh\necho broken >&2\nexit 2\n");
  std::filesystem::permissions(dir / "bin/nsa-worker", std::filesystem::perms::owner_all);
  EXPECT_FALSE(fault("P08").inject({.bin_dir = dir / "bin"}).as_wanted);
  SelftestSetup setup{.bin_dir = dir / "bin", .configs = base::source_dir() + "/configs"};
  EXPECT_FALSE(fault("P03").inject(setup).as_wanted);
}

}  // namespace
}  // namespace harness
