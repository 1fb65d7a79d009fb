#include "harness/runbook/documents.h"

#include <cstdlib>
#include <random>

#include "harness/runbook/mutate.h"
#include "harness/runbook/testing.h"
#include "harness/schema/read.h"
#include "harness/schema/write.h"

namespace harness {
namespace {

using nlohmann::json;

TEST(SchemaFiles, AreWhatTheStructsSay) {
  for (const char* name : {"runbook", "kind", "results"}) {
    const auto path = source_path("configs/schema/" + std::string(name) + ".schema.json");
    const std::string want = pretty_dump(documents().at(name).schema);
    if (std::getenv("UPDATE_SCHEMA")) std::ofstream(path, std::ios::binary) << want;
    EXPECT_EQ(file_text(path), want) << path << " is stale; run this test with UPDATE_SCHEMA=1";
  }
}

TEST(References, NameEveryKey) {
  for (const auto& [name, document] : documents()) {
    EXPECT_THAT(document.reference, testing::StartsWith("# " + name + "\n")) << name;
    EXPECT_THAT(document.reference, testing::HasSubstr("required")) << name;
  }
  EXPECT_THAT(documents().at("runbook").reference,
              testing::HasSubstr("## runbook.phases[].criteria[]"));
}

bool reader_accepts(const std::string& text) {
  try {
    Source source;
    const json document = source.parse(text, "f.json");
    const bool partial = document.is_object() && document.value("extends", json("")) != "";
    Reader(source, partial ? ReadMode::kPartial : ReadMode::kFull).read<Runbook>(document);
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

/// One word a text, from Python's jsonschema and the committed schema.
std::vector<std::string> jsonschema_verdict(const std::vector<std::string>& texts) {
  TempConfigs configs;
  std::string lines;
  for (const std::string& text : texts)
    lines +=
        json{{"schema", source_path("configs/schema/runbook.schema.json").string()}, {"text", text}}
            .dump() +
        "\n";
  configs.write("requests", lines);
  const std::string command = std::string(NSA_VENV) + "/bin/python " +
                              source_path("harness/runbook/testdata/validate.py").string() + " < " +
                              (configs.dir() / "requests").string() + " > " +
                              (configs.dir() / "answers").string();
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  std::ifstream answers(configs.dir() / "answers");
  std::vector<std::string> words;
  for (std::string word; std::getline(answers, word);) words.push_back(word);
  return words;
}

void expect_agreement(const std::vector<std::string>& texts) {
  const std::vector<std::string> words = jsonschema_verdict(texts);
  ASSERT_EQ(words.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i)
    EXPECT_EQ(words[i], reader_accepts(texts[i]) ? "accept" : "reject") << texts[i];
}

TEST(Agreement, ShippedRunbooks) {
  std::vector<std::string> texts;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("configs/runbooks")))
    texts.push_back(file_text(entry.path()));
  ASSERT_GE(texts.size(), 4u);
  for (const std::string& text : texts) EXPECT_TRUE(reader_accepts(text));
  expect_agreement(texts);
}

TEST(Agreement, CorpusOfBadOnes) {
  std::vector<std::string> texts;
  const json corpus = Source().parse(
      file_text(source_path("harness/runbook/testdata/structural.json")), "structural.json");
  for (const json& item : corpus) {
    texts.push_back(minimal_json().patch(item["patch"]).dump());
    EXPECT_EQ(reader_accepts(texts.back()), item["accept"].get<bool>()) << item["name"];
  }
  ASSERT_GE(texts.size(), 30u);
  texts.push_back(with(minimal_text(), "\"title\"", "\"title\": \"\", \"title\""));
  texts.push_back(with(minimal_text(), "\"Two phases\"", "1e999"));
  texts.push_back(with(minimal_text(), "\"Two phases\"", "NaN"));
  texts.push_back(with(minimal_text(), "\"Two phases\",", "\"Two phases\",,"));
  texts.push_back(minimal_text() + "x");
  texts.push_back(minimal_text() + "// end");
  expect_agreement(texts);
}

TEST(Agreement, RandomChanges) {
  std::mt19937_64 random(20250216);
  std::vector<std::string> texts;
  int accepted = 0;
  for (int i = 0; i < 400; ++i) {
    json document = minimal_json();
    change_value(document, random);
    texts.push_back(document.dump());
    accepted += reader_accepts(texts.back());
  }
  EXPECT_GT(accepted, 40) << "too few good documents to tell agreement from rejection of all";
  EXPECT_LT(accepted, 360);
  expect_agreement(texts);
}

}  // namespace
}  // namespace harness
