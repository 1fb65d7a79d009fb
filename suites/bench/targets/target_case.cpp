#include "suites/bench/targets/target_case.h"

namespace suites {
namespace {

CaseConfig sizes(int64_t batch, int64_t tokens, int64_t num_heads, int64_t num_kv_heads, int64_t dk,
                 int64_t dv) {
  CaseConfig c;
  c.batch = batch;
  c.tokens = tokens;
  c.num_heads = num_heads;
  c.num_kv_heads = num_kv_heads;
  c.qk_head_dim = dk;
  c.v_head_dim = dv;
  c.block_size = 32;
  c.block_stride = 16;
  c.sel_block_size = 64;
  c.top_n = 16;
  c.window = 512;
  c.gate = GateKind::kSigmoid;
  c.rope = RopeKind::kNone;
  return c;
}

constexpr int64_t k = 1024;

CaseConfig paper(int64_t tokens, int64_t batch = 1) {
  return sizes(batch, tokens, 64, 4, 192, 128);
}
CaseConfig m7c(int64_t tokens, int64_t batch = 1) { return sizes(batch, tokens, 12, 2, 64, 64); }
CaseConfig nsa_1b(int64_t tokens) {
  CaseConfig c = sizes(1, tokens, 32, 2, 64, 64);
  c.block_size = c.block_stride = c.sel_block_size = 16;
  c.window = 128;
  return c;
}

std::string in_k(int64_t tokens) { return std::to_string(tokens / k) + "k"; }

}  // namespace

std::vector<TargetCase> target_cases() {
  return {
      {"paper_8k", paper(8 * k), {0.79, 1.9, 1.4, 3.86}, {2.0, 5.0, 3.6, 10.1}},
      {"paper_32k", paper(32 * k), {5.3, 11, 8.5, 20.5}, {11.7, 27, 20, 53.3}},
      {"paper_64k", paper(64 * k), {16.2, 29, 23, 53.2}, {32.5, 70, 52, 139}},
      {"g4_32k", sizes(1, 32 * k, 64, 16, 128, 128), {{}, 11, 8, 39.2}, {{}, 27, 20, 57.4}},
      {"g1_32k", sizes(1, 32 * k, 64, 64, 128, 128), {{}, 22, 15, 136}, {{}, 50, 35, 146}},
      {"m7c_2k", m7c(2 * k, 8), {0.10, 0.30, 0.20, 0.89}, {0.24, 0.75, 0.5, 1.87}},
      {"paper_2k", paper(2 * k), {}, {}},
      {"paper_4k", paper(4 * k), {}, {}},
      {"paper_16k", paper(16 * k), {}, {}},
      {"m7c_8k", m7c(8 * k), {}, {}},
      {"m7c_64k", m7c(64 * k), {}, {}},
      {"nsa1b_8k", nsa_1b(8 * k), {}, {}},
      {"nsa1b_32k", nsa_1b(32 * k), {}, {}},
  };
}

std::vector<TargetCase> repeated_cases() {
  std::vector<TargetCase> cases = target_cases();
  cases.push_back({"g2_8k", sizes(1, 8 * k, 32, 16, 128, 128), {}, {}});
  cases.push_back({"g8_8k", sizes(1, 8 * k, 32, 4, 128, 128), {}, {}});
  return cases;
}

std::vector<TargetCase> scaling_cases() {
  std::vector<TargetCase> cases;
  for (int64_t tokens = k; tokens <= 256 * k; tokens *= 2) {
    cases.push_back({"paper_" + in_k(tokens), paper(tokens), {}, {}});
    cases.push_back({"m7c_" + in_k(tokens), m7c(tokens), {}, {}});
  }
  return cases;
}

std::vector<TargetCase> cpu_cases() {
  std::vector<TargetCase> cases;
  for (int64_t tokens = 2 * k; tokens <= 64 * k; tokens *= 2)
    cases.push_back({"m7c_" + in_k(tokens), m7c(tokens), {}, {}});
  for (int64_t tokens = 2 * k; tokens <= 64 * k; tokens *= 2)
    cases.push_back({"paper_" + in_k(tokens), paper(tokens), {}, {}});
  return cases;
}

std::vector<DecodeCase> decode_cases() {
  std::vector<DecodeCase> cases{
      {"paper_64k_B1", paper(64 * k), {{}, 0.018, {}, 0.070}},
      {"paper_64k_B32", paper(64 * k, 32), {{}, 0.115, {}, 0.163}},
      {"paper_8k_B256", paper(8 * k, 256), {{}, 0.30, {}, 0.417}},
      {"m7c_2k_B1", m7c(2 * k), {{}, 0.012, {}, 0.031}},
      {"paper_8k_B1", paper(8 * k), {{}, {}, {}, 0.054}},
  };
  for (const int64_t tokens : {2 * k, 16 * k, 32 * k, 128 * k, 256 * k})
    cases.push_back({"paper_" + in_k(tokens) + "_B1", paper(tokens), {}});
  for (const int64_t batch : {2, 4, 8, 16, 32, 64, 128})
    cases.push_back({"paper_8k_B" + std::to_string(batch), paper(8 * k, batch), {}});
  for (const int64_t tokens : {8 * k, 64 * k})
    cases.push_back({"m7c_" + in_k(tokens) + "_B1", m7c(tokens), {}});
  for (const int64_t drafted : {4, 8}) {
    const std::string of = "_x" + std::to_string(drafted);
    cases.push_back({"paper_64k_B1" + of, paper(64 * k), {}, drafted});
    cases.push_back({"paper_8k_B8" + of, paper(8 * k, 8), {}, drafted});
    cases.push_back({"m7c_2k_B1" + of, m7c(2 * k), {}, drafted});
  }
  return cases;
}

}  // namespace suites
