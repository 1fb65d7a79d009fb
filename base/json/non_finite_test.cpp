#include "base/json/non_finite.h"

#include <gtest/gtest.h>

namespace base {
namespace {

TEST(NonFinite, BareWordsBecomeStrings) {
  EXPECT_EQ(quote_non_finite(R"({"a": NaN, "b": -Infinity,"c":[inf,-nan, 1e-5]})"),
            R"({"a": "NaN", "b": "-Infinity","c":["inf","-nan", 1e-5]})");
}

TEST(NonFinite, OtherTextStaysAsItIs) {
  for (const char* text : {R"({"NaN": "inf \" NaN", "b": null, "c": -1.5e+3, "d": true})", "",
                           R"("NaN)", R"("\)", "nano"})
    EXPECT_EQ(quote_non_finite(text), text);
}

}  // namespace
}  // namespace base
