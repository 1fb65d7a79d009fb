#include "harness/runbook/checks/check.h"

#include "harness/runbook/checks/check_testing.h"

namespace harness {
namespace {

using testing::HasSubstr;

class BadKind : public testing::TestWithParam<BadInput> {};

TEST_P(BadKind, IsRejectedByName) {
  TempConfigs configs;
  const auto text = file_text(source_path("configs/kinds/ranges_ab.json"));
  configs.write("kinds/ranges_ab.json", with(text, GetParam().from, GetParam().to));
  const std::string error = config_error_of([&] { load_kinds(configs.dir()); });
  EXPECT_THAT(error, HasSubstr("kinds/ranges_ab.json:")) << "no position";
  EXPECT_THAT(error, HasSubstr(GetParam().error));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, BadKind,
    testing::Values(
        BadInput{"\"kind\": \"ranges_ab\"", "\"kind\": \"ab\"", "must be named like its file"},
        BadInput{"\"nsa-worker\"", "\"worker\"", "program must be one of"},
        BadInput{"\"mode\": \"time\"", "\"mode\": \"timed\"", "did you mean 'time'?"},
        BadInput{"\"minutes\": 0.05", "\"minutes\": 0", "minutes must be above 0"},
        BadInput{"\"type\": \"int\"", "\"type\": \"integer\"", "type must be one of int, number"},
        BadInput{"\"default\": 2", "\"default\": \"2\"", "argument 'B': default must be an int"},
        BadInput{"\"name\": \"S\"", "\"name\": \"B\"", "'B' is declared twice"},
        BadInput{"\"median\"", "\"medain\"", "did you mean 'median'?"},
        BadInput{"\"name\": \"v1.call_ms\"", "\"name\": \"v1.call_us\"", "must end in _ms"},
        BadInput{"\"device\": \"cuda\"", "\"device\": \"gpu\"", "device must be one of cpu, cuda"},
        BadInput{"[\"v1\", \"v2\"]", "[\"v1\"]", "paired_ratio takes 2 arms, got 1"},
        BadInput{"\"default\": 2", "\"default\": 2, \"unit\": \"pieces\"",
                 "argument 'B': unit must be one of ms, us, s"},
        BadInput{"\"v2.call_ms\"", "\"v1.call_ms\"", "metrics: 'v1.call_ms' is declared twice"},
        BadInput{"\"estimator\": \"median\"", "\"estimator\": \"median\", \"arms\": [\"v1\"]",
                 "median takes 0 arms, got 1"},
        BadInput{"\"estimator\": \"median\"", "\"estimator\": \"paired_overhead\"",
                 "paired_overhead takes 2 arms, got 0"},
        BadInput{"\"unit\": \"ms\"", "\"unit\": \"hours\"", "unit must be one of ms, us, s"}));

INSTANTIATE_TEST_SUITE_P(
    Settings, BadKind,
    testing::Values(BadInput{"\"v1\": \"NSA_", "\"v3\": \"NSA_",
                             "setting of 'v3': no metric compares such an arm; did you mean"},
                    BadInput{"\"NSA_SEL_RANGES_V2=0\"", "\"\"", "setting of 'v1': empty"},
                    BadInput{"\"v1\": \"NSA_", "\"{version}\": \"NSA_",
                             "setting of '{version}': no list 'version' in this kind"}));

INSTANTIATE_TEST_SUITE_P(
    Lists, BadKind,
    testing::Values(BadInput{"\"v1.call_ms\"", "\"{arm}.call_ms\"", "no list 'arm' in this kind"},
                    BadInput{"\"metrics\": [", R"("lists": {"arm": ["v1"]}, "metrics": [)",
                             "list 'arm': no metric is named by {arm}"},
                    BadInput{"\"metrics\": [",
                             R"("lists": {"arm": ["v1", "v1"]}, "metrics": [)"
                             R"({"name": "{arm}.x_ms", "unit": "ms", "estimator": "median"}, )",
                             "list 'arm': a word is given twice"},
                    BadInput{"\"metrics\": [",
                             R"("lists": {"arm": ["v1"]}, "metrics": [)"
                             R"({"name": "{arm}.call_ms", "unit": "ms", "estimator": "median"}, )",
                             "metrics: 'v1.call_ms' is declared twice"},
                    BadInput{"\"metrics\": [", R"("lists": {"arm": []}, "metrics": [)",
                             "list 'arm': no words"}));

INSTANTIATE_TEST_SUITE_P(
    Tables, BadKind,
    testing::Values(
        BadInput{
            "\"metrics\": [",
            R"("tables": [{"id": "t", "title": "T", "columns": ["a", "b"], "rows": [["=v1.call_ms"]]}], "metrics": [)",
            "table 't': a row has 1 cells, want 2"},
        BadInput{
            "\"metrics\": [",
            R"("tables": [{"id": "t", "title": "T", "columns": ["a"], "rows": [["=v3.call_ms"]]}], "metrics": [)",
            "table 't': no metric 'v3.call_ms'; did you mean 'v1.call_ms'?"},
        BadInput{
            "\"metrics\": [",
            R"("tables": [{"id": "T", "title": "T", "columns": [], "rows": []}], "metrics": [)",
            "the id must be lower case"}));

}  // namespace
}  // namespace harness
