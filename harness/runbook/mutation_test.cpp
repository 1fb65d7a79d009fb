#include "harness/runbook/mutate.h"
#include "harness/runbook/plan.h"
#include "harness/runbook/testing.h"
#include "harness/schema/write.h"

/// Damaged runbooks are either good or a ConfigError of one line; never a crash, a hang or another
/// exception. A good one can be planned, and written.
namespace harness {
namespace {

/// 1 when `text` loads, 0 when it is rejected.
int try_load(const TempConfigs& configs, const std::string& text) {
  try {
    const LoadedRunbook book = configs.load(text);
    make_plan(book, {{"gpu.count", 1}});
    canonical_dump(to_json(book.runbook));
    return 1;
  } catch (const ConfigError& e) {
    const std::string what = e.what();
    EXPECT_GT(what.size(), 20u) << text;
    EXPECT_LT(what.size(), 2000u) << text;
    for (const char c : what)
      if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) {
        ADD_FAILURE() << "error with raw bytes: " << what;
        break;
      }
    return 0;
  }
}

class Mutations : public testing::Test {
 protected:
  std::string original() const { return minimal_text(); }
  TempConfigs configs_;
  Random random_{20250216};
};

TEST_F(Mutations, OfValues) {
  int good = 0;
  for (int i = 0; i < 1500; ++i) {
    nlohmann::json document = minimal_json();
    for (size_t changes = 1 + random_() % 3; changes > 0; --changes)
      change_value(document, random_);
    good += try_load(configs_, document.dump());
  }
  EXPECT_GT(good, 15);
  EXPECT_LT(good, 750);
}

TEST_F(Mutations, OfBytes) {
  int good = 0;
  for (int i = 0; i < 1500; ++i) {
    std::string text = original();
    for (size_t changes = 1 + random_() % 3; changes > 0; --changes) change_bytes(text, random_);
    good += try_load(configs_, text);
  }
  EXPECT_GT(good, 15);
  EXPECT_LT(good, 1000);
}

}  // namespace
}  // namespace harness
