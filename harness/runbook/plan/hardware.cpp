#include "harness/runbook/plan/hardware.h"

#include "harness/runbook/checks/check_at.h"
#include "harness/runbook/checks/require.h"
#include "harness/runbook/files.h"
#include "harness/schema/read.h"

namespace harness {

std::vector<HardwareSpec> load_hardware(const std::filesystem::path& configs_dir) {
  std::vector<HardwareSpec> cards;
  const auto folder = configs_dir / "hardware";
  for (const std::string& name : json_stems(folder)) {
    const auto path = folder / (name + ".json");
    Source source;
    const auto document = source.parse(read_text(path), path.string());
    const auto card = Reader(source).read<HardwareSpec>(document);
    require(source, at(document, "name"), card.name == name,
            "name must be that of the file, '" + name + "', got " + in_quotes(card.name));
    for (const char* key : {"cc", "memory_mib", "memory_gb_s", "bf16_tflop_s"})
      require(source, at(document, key), at(document, key) > 0,
              std::string(key) + " must be above 0");
    cards.push_back(card);
  }
  return cards;
}

std::optional<HardwareSpec> find_hardware(const std::vector<HardwareSpec>& cards,
                                          const std::string& sku) {
  for (const HardwareSpec& card : cards)
    if (glob_match(card.sku, sku)) return card;
  return std::nullopt;
}

}  // namespace harness
