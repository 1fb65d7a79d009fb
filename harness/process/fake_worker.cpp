/// A worker that misbehaves on request: args.behaviour of the case line. Only for tests.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <thread>

#include "base/protocol/case.h"
#include "base/protocol/emitter.h"

using namespace base::protocol;

namespace {

void sleep_s(double s) { std::this_thread::sleep_for(std::chrono::duration<double>(s)); }

void raw(const std::string& text) {
  [[maybe_unused]] const auto n = ::write(3, text.data(), text.size());
}

void print_stacks(int) {
  const char text[] = "host stacks: thread 1 in fake_worker\n";
  [[maybe_unused]] const auto n = ::write(2, text, sizeof text - 1);
}

[[noreturn]] void never_end() {
  ::signal(SIGTERM, SIG_IGN);
  ::signal(SIGUSR1, print_stacks);
  while (true) ::pause();
}

/// A grandchild that stays; `escape`: in a session of its own.
void leave_child(const CaseIn& in, bool escape) {
  if (const pid_t child = ::fork(); child > 0) {
    std::ofstream(in.out + "/grandchild.pid") << child;
    return;
  }
  if (escape) ::setsid();
  never_end();
}

struct Script {
  const CaseIn& in;
  Emitter& emitter;

  double number(const char* name, double fallback) const { return in.args.value(name, fallback); }

  void hello() {
    emitter.hello({.program = "fake_worker",
                   .build_id = in.args.value("build_id", "fake"),
                   .switches = {{"NSA_FAKE", "1", "config"}}});
  }

  void work(const CaseArgs& one) {
    const auto steps = in.args.value("steps", 3);
    for (int step = 1; step <= in.args.value("earlier", 0); step++)
      emitter.beat({.case_id = one.id,
                    .step = step,
                    .of = steps,
                    .at = std::string(base::protocol::kEarlierStep)});
    for (int step = 1; step <= steps; step++) {
      sleep_s(number("step_s", 0));
      emitter.beat({.case_id = one.id,
                    .step = step,
                    .of = steps,
                    .at = "step",
                    .rate = number("rate", 100),
                    .rate_unit = "steps/s"});
      if (in.mode == "time")
        emitter.sample({.case_id = one.id,
                        .series = "x",
                        .value = static_cast<double>(in.seed + step),
                        .unit = "ms",
                        .round = step});
    }
    emitter.check({.case_id = one.id, .id = "fake.works", .ok = true});
    emitter.metric({.case_id = one.id, .name = "seed_count", .value = in.seed, .unit = "count"});
  }

  void all_cases() {
    hello();
    for (const auto& one : in.cases) {
      work(one);
      if (one.args.contains("fail"))
        emitter.fail_case(one.id, one.args["fail"]);
      else if (one.args.contains("undecided"))
        emitter.end_case_undecided(one.id, one.args["undecided"], one.args.value("why", ""));
      else
        emitter.end_case(one.id);
    }
  }

  void good() {
    all_cases();
    emitter.done();
  }
};

using Behaviour = int (*)(Script&);

// NOLINTNEXTLINE(bugprone-throwing-static-initialization): a test's program
const std::map<std::string, Behaviour> kBehaviours = {
    {"normal", [](Script& s) { return s.good(), 0; }},
    {"no_done", [](Script& s) { return s.all_cases(), 0; }},
    {"names_artifact",
     [](Script& s) {
       std::ofstream(s.in.out + "/real.txt") << "x";
       std::filesystem::create_symlink("real.txt", s.in.out + "/link.txt");
       s.all_cases();
       s.emitter.artifact(s.in.args.at("artifact"), "text/plain");
       return s.emitter.done(), 0;
     }},
    {"rewrite",
     [](Script& s) {
       std::ofstream(s.in.out + "/../../../" + s.in.args.at("file").get<std::string>())
           << "rewritten by a worker";
       return s.good(), 0;
     }},
    {"exit_3", [](Script& s) { return s.good(), 3; }},
    {"refuse",
     [](Script&) {
       std::fputs("loading\nCONFIG_ERROR: \x1b[31munknown switch NSA_X; did you mean NSA_Y?\n \n",
                  stderr);
       return 2;
     }},
    {"remove_log",
     [](Script& s) {
       std::filesystem::remove(s.in.out + "/../" + s.in.group + ".err");
       return s.good(), 3;
     }},
    {"silent", [](Script&) { return 0; }},
    {"garbage",
     [](Script& s) { return s.all_cases(), raw("\xff<script>`|\x1b[31m\n"), s.emitter.done(), 0; }},
    // A sanitizer would catch the signal and exit; the default action is what is to be seen.
    {"segv", [](Script& s) { return s.hello(), ::signal(SIGSEGV, SIG_DFL), ::raise(SIGSEGV), 0; }},
    {"killed", [](Script& s) { return s.hello(), ::raise(SIGKILL), 0; }},
    {"hang", [](Script& s) { return s.all_cases(), never_end(), 0; }},
    {"hang_in_stage",
     [](Script& s) {
       std::ofstream(s.in.out + "/stages.bin")
           << "77: train.step > nsa.gate" << std::string(9, '\0');
       return s.all_cases(), never_end(), 0;
     }},
    {"hang_at_start", [](Script&) { return never_end(), 0; }},
    {"grandchild", [](Script& s) { return leave_child(s.in, false), s.good(), 0; }},
    {"escaped_grandchild", [](Script& s) { return leave_child(s.in, true), s.good(), 0; }},
    {"hang_with_grandchild",
     [](Script& s) { return leave_child(s.in, true), s.hello(), never_end(), 0; }},
    {"emit_nan",
     [](Script& s) {
       s.hello();
       s.emitter.metric(
           {.name = "loss_nat", .value = std::numeric_limits<double>::quiet_NaN(), .unit = "nat"});
       for (const auto& one : s.in.cases) s.emitter.end_case(one.id);
       return s.emitter.done(), 0;
     }},
    {"forge_time",
     [](Script& s) {
       s.hello();
       raw(R"({"type":"sample","t":0,"case":"a","series":"x","value":-1.5,"unit":"ms","round":0,"order":0})"
           "\n");
       return s.emitter.done(), 0;
     }},
    {"forge_twice",
     [](Script& s) {
       s.hello();
       for (int i = 0; i < 2; i++)
         s.emitter.sample({.case_id = "a", .series = "x", .value = 1, .unit = "ms"});
       return s.emitter.end_case("a"), s.emitter.done(), 0;
     }},
    {"hello_twice", [](Script& s) { return s.hello(), s.good(), 0; }},
    {"raw_nan",
     [](Script& s) {
       return s.hello(),
              raw(R"({"type":"metric","t":0,"name":"m","unit":"s","value":NaN})"
                  "\n"),
              s.emitter.done(), 0;
     }},
    {"foreign",
     [](Script& s) {
       return s.all_cases(), s.emitter.end_case("x|`y`<script>\n"), s.emitter.done(), 0;
     }},
    {"duplicate",
     [](Script& s) {
       return s.all_cases(), s.emitter.end_case(s.in.cases[0].id), s.emitter.done(), 0;
     }},
    {"after_done", [](Script& s) { return s.good(), s.emitter.beat({.step = 1, .of = 1}), 0; }},
    {"bad_count",
     [](Script& s) { return s.all_cases(), raw("{\"type\":\"done\",\"t\":0,\"lines\":99}\n"), 0; }},
    {"missing_case", [](Script& s) { return s.hello(), s.emitter.done(), 0; }},
    {"half_line",
     [](Script& s) -> int {
       s.all_cases();
       raw("{\"type\":\"do");
       ::_exit(0);
     }},
    {"flood",
     [](Script& s) {
       const std::string line(99, 'x');
       const auto lines = static_cast<long>(s.number("mb", 100) * 1e4);
       for (long i = 0; i < lines; ++i) std::puts(line.c_str());
       return s.good(), 0;
     }},
    {"flood_results",
     [](Script& s) {
       s.hello();
       const std::string line = R"({"type":"beat","t":1,"step":1,"of":0})" + std::string("\n");
       std::string block;
       while (block.size() < (64 << 10)) block += line;
       for (; true; sleep_s(.001)) raw(block);
       return 0;
     }},
    {"hostile_log",
     [](Script& s) {
       const std::string text = "|`<script>\x1b[31m\xff\xfe\n";
       [[maybe_unused]] const auto n = ::write(1, text.data(), text.size());
       return s.good(), 0;
     }},
    {"closed_input",
     [](Script& s) {
       ::close(0);
       ::close(1);
       ::close(2);
       return s.good(), 0;
     }},
    {"stay_quiet", [](Script& s) { return sleep_s(s.number("quiet_s", 1)), s.good(), 0; }},
    {"fail_once",  // killed at the first attempt, well at the second
     [](Script& s) {
       const auto flag = s.in.out + "/failed_once." + s.in.group;
       if (::access(flag.c_str(), F_OK) == 0) return s.good(), 0;
       std::ofstream(flag) << "1";
       return s.hello(), ::raise(SIGKILL), 0;
     }},
    {"rank1_killed",  // its neighbours wait for it for ever
     [](Script& s) {
       const char* rank = std::getenv("RANK");
       s.hello();
       if (rank != nullptr && *rank == '1') return ::raise(SIGKILL), 0;
       return never_end(), 0;
     }},
    {"print_rank",
     [](Script& s) {
       for (const auto* name : {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
         std::printf("%s=%s\n", name, std::getenv(name) == nullptr ? "unset" : std::getenv(name));
       return s.good(), 0;
     }},
    {"print_env",
     [](Script& s) {
       for (const auto* name : {"NSA_FAKE", "HARNESS_GROUP", "SECRET_TOKEN"})
         std::printf("%s=%s\n", name, std::getenv(name) == nullptr ? "unset" : std::getenv(name));
       return s.good(), 0;
     }},
};

}  // namespace

int main(int argc, char** argv) {
  try {
    const CaseIn in = read_case(std::cin);
    Emitter emitter(result_path(argc, argv));
    Script script{in, emitter};
    const auto behaviour = kBehaviours.find(in.args.value("behaviour", "normal"));
    if (behaviour == kBehaviours.end()) return 9;
    return behaviour->second(script);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "fake_worker: %s\n", e.what());
    return 8;
  }
}
