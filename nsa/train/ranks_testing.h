#pragma once
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <random>
#include <utility>

#include "nsa/train/program_testing.h"

namespace nsa::train {

/// Loss and gradient norm of each step.
using Curve = std::vector<std::pair<double, double>>;

/// A port that no process listens on; `held` keeps it taken. Below those that the kernel gives to
/// connections, and no other test's while this one lives: ranks bind it some seconds later.
class Port {
 public:
  explicit Port(bool held = false) {
    static std::mt19937 random(std::random_device{}());
    std::uniform_int_distribution<int> numbers(21000, 31999);
    do {
      if (socket_ >= 0) close(socket_);
      number_ = numbers(random);
      socket_ = socket(AF_INET, SOCK_STREAM, 0);
    } while (!is_own() || !is_bound());
    if (held) listen(socket_, 1);
    if (!held) close(std::exchange(socket_, -1));
  }
  ~Port() {
    if (socket_ >= 0) close(socket_);
    close(ports_);
  }
  std::string text() const { return std::to_string(number_); }

 private:
  /// Locks the port's byte of a file that all tests share; the lock ends with the descriptor.
  bool is_own() const {
    struct flock byte{};
    byte.l_type = F_WRLCK;
    byte.l_start = number_;
    byte.l_len = 1;
    return ports_ < 0 || fcntl(ports_, F_OFD_SETLK, &byte) == 0;
  }
  bool is_bound() const {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(number_));
    return bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }

  int ports_ = open((std::filesystem::temp_directory_path() / "nsa-test-ports").c_str(),
                    O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  int socket_ = -1;
  int number_ = 0;
};

/// Ranks of nsa-train as processes on this machine.
class RanksTest : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    // 1.8 M parameters: 6.89 MiB of gradients, the largest of 1 MiB.
    std::ofstream(dir_ / "wide.json")
        << R"({"name": "wide", "vocab": 256, "dim": 256, "num_layers": 3, "mlp_hidden": 512, "seq_len": 16,
      "attention": {"num_heads": 4, "num_kv_heads": 2, "qk_head_dim": 32, "v_head_dim": 32, "block_size": 8,
      "block_stride": 4, "sel_block_size": 16, "top_n": 4, "window": 16}})";
  }
  /// The command line of one rank in the background; RESULT is NAME, NAME.rank1, ..
  std::string rank(int64_t rank, int64_t world, const Port& port, const std::string& args) {
    return start(rank, world, port, "--data synthetic --warmup 2 " + args);
  }
  std::string start(int64_t rank, int64_t world, const Port& port, const std::string& args,
                    const std::string& variables = "") {
    return variables + " RANK=" + std::to_string(rank) + " WORLD_SIZE=" + std::to_string(world) +
           " LOCAL_RANK=" + std::to_string(rank) +
           " MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port.text() + " " + program("nsa-train") + " " +
           args + " 2> err" + std::to_string(rank) + " & p" + std::to_string(rank) + "=$!; ";
  }
  /// All ranks to their ends; the sum of their exit statuses.
  int all_ranks(int64_t world, const std::string& args, const std::string& variables = "") {
    const Port port;
    std::string command = "export NSA_NVTX=0 " + variables + "; s=0; ";
    for (int64_t i = 0; i < world; ++i) command += rank(i, world, port, args);
    for (int64_t i = 0; i < world; ++i)
      command += "wait $p" + std::to_string(i) + "; s=$((s + $?)); ";
    return shell(command + "exit $s");
  }
  int two_ranks(const std::string& args, const std::string& variables = "") {
    return all_ranks(2, args, variables);
  }
  std::vector<json> lines_of(const std::string& result) {
    std::vector<json> lines;
    std::ifstream in(dir_ / result);
    for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
    return lines;
  }
  Curve curve(const std::string& result) {
    Curve values;
    for (const json& step : steps_of(lines_of(result)))
      values.emplace_back(step["extra"]["loss"], step["extra"]["grad_norm"]);
    return values;
  }
  json check(const std::string& result, const std::string& id) {
    for (const json& line : of_type(lines_of(result), "check"))
      if (line["id"] == id) return line;
    return nullptr;
  }
  static void expect_near(const Curve& a, const Curve& b, double bound) {
    ASSERT_EQ(a.size(), b.size());
    ASSERT_GT(a.size(), 0u);
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_NEAR(a[i].first, b[i].first, bound) << i;
      EXPECT_NEAR(a[i].second, b[i].second, bound) << i;
    }
  }
};

}  // namespace nsa::train
