#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <sstream>
#include <vector>

#include "base/testing/paths.h"
#include "harness/stats/ab.h"
#include "harness/stats/random.h"
#include "harness/stats/signed_rank.h"

/// Whole experiments at the default budget (10 processes, 3 rounds of ABBA or BAAB) under a noise
/// model in log time: a shift per process, a shift per arm and process, clock drift (AR(1), 0.98 a
/// sample), a warm-up ramp, white noise, and spikes of 5 to 20 %. Seeds are fixed.
namespace harness::stats {
namespace {

struct Noise {
  double process, arm, drift, ramp, white, spike_share;
};
constexpr Noise kTypical = {.006, .003, .004, .004, .003, .02};
constexpr Noise kNoisy = {.03, .01, .015, .01, .01, .05};
constexpr int kProcesses = 10;
constexpr int kRounds = 3;

ArmTimes simulate_process(Random& random, const Noise& noise, double effect) {
  ArmTimes times;
  const double shift = noise.process * random.normal();
  const double arm_shift[2] = {noise.arm * random.normal(), noise.arm * random.normal() + effect};
  double drift = noise.drift * random.normal();
  int sample = 0;
  for (int round = 0; round < kRounds; ++round) {
    const int first = random.below(2) == 0 ? 0 : 1;
    for (const int arm : {first, 1 - first, 1 - first, first}) {
      drift = .98 * drift + std::sqrt(1 - .98 * .98) * noise.drift * random.normal();
      double log_time = shift + arm_shift[arm] + drift + noise.white * random.normal() +
                        noise.ramp * std::exp(-sample++ / 3.0);
      if (random.uniform() < noise.spike_share) log_time += .05 + .15 * random.uniform();
      (arm == 0 ? times.baseline : times.candidate).push_back(std::exp(log_time));
    }
  }
  return times;
}

AbVerdict simulate_experiment(Random& random, const Noise& noise, double effect, double margin) {
  std::vector<ArmTimes> processes;
  for (int i = 0; i < kProcesses; ++i) processes.push_back(simulate_process(random, noise, effect));
  std::vector<double> ratios;
  for (const PairedRatio& r : paired_log_ratios(processes)) ratios.push_back(r.log_ratio);
  return compare_arms(ratios, margin).verdict;
}

int count(AbVerdict wanted, const Noise& noise, double effect, double margin, int experiments,
          uint64_t seed) {
  Random random(seed);
  int hits = 0;
  for (int i = 0; i < experiments; ++i)
    if (simulate_experiment(random, noise, effect, margin) == wanted) ++hits;
  return hits;
}

TEST(AbSimulation, NoFalseAlarmIn200IdenticalPairs) {
  for (const double margin : {kGpuMargin, kCpuMargin})
    for (const Noise& noise : {kTypical, kNoisy})
      for (const AbVerdict alarm : {AbVerdict::kFaster, AbVerdict::kSlower})
        EXPECT_EQ(count(alarm, noise, 0, margin, 200, 20250216), 0)
            << ab_verdict_name(alarm) << " at margin " << margin;
}

/// Experiments without a difference whose centre is called off zero at the first of two looks or,
/// after a doubling, at the second.
int alarms_of_two_looks(double level, int experiments) {
  Random random(77);
  int alarms = 0;
  for (int e = 0; e < experiments; ++e) {
    std::vector<double> ratios;
    bool alarm = false;
    for (int look = 0; look < 2 && !alarm; ++look) {
      for (int i = 0; i < kProcesses; ++i) ratios.push_back(random.normal());
      const auto interval = signed_rank_interval(ratios, level);
      alarm = interval && (interval->lo > 0 || interval->hi < 0);
    }
    alarms += alarm;
  }
  return alarms;
}

TEST(AbSimulation, TwoLooksTogetherKeepTheLevelOnlyWhenTheyShareIt) {
  const int experiments = 20000;  // 1 % of them is 200, with a standard deviation of 14
  const int shared = alarms_of_two_looks(level_each(2), experiments);
  const int peeking = alarms_of_two_looks(kVerdictLevel, experiments);
  std::cout << "two looks: " << shared / 200.0 << " % false alarms at the shared level, "
            << peeking / 200.0 << " % when each takes 99 %\n";
  EXPECT_LE(shared, 200);
  EXPECT_GT(peeking, 228) << "the test could not show a difference";
}

TEST(AbSimulation, FindsInjectedSlowdown) {
  const int gpu = count(AbVerdict::kSlower, kTypical, std::log(1.03), kGpuMargin, 200, 3);
  const int cpu = count(AbVerdict::kSlower, kNoisy, std::log(1.15), kCpuMargin, 200, 4);
  std::cout << "+3 % called SLOWER at the GPU margin in " << gpu
            << " of 200, +15 % at the CPU margin in " << cpu << " of 200\n";
  EXPECT_GE(gpu, 190);
  EXPECT_GE(cpu, 190);
}

/// Measured, not modelled: 60 processes of ab_control with 20 rounds each on two cores that
/// compilers of others kept busy (load 5 to 8): a function, the same again, and with 15 % more
/// calls.
struct BusyProcess {
  ArmTimes slower{"busy", {}, {}}, same{"busy", {}, {}};
};

std::vector<BusyProcess> busy_machine(int64_t rounds) {
  std::ifstream file(base::source_dir() + "/harness/stats/testdata/busy_cpu.csv");
  std::string line;
  std::getline(file, line);
  std::vector<BusyProcess> all;
  while (std::getline(file, line)) {
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream cells(line);
    size_t process = 0;
    int64_t round = 0;
    double base[2], again[2], more[2];
    cells >> process >> round >> base[0] >> base[1] >> again[0] >> again[1] >> more[0] >> more[1];
    if (!cells) throw std::runtime_error("busy_cpu.csv: " + line);
    if (round >= rounds) continue;
    all.resize(std::max(all.size(), process + 1));
    const auto add = [round](ArmTimes& to, const double* baseline, const double* candidate) {
      to.baseline.insert(to.baseline.end(), baseline, baseline + 2);
      to.candidate.insert(to.candidate.end(), candidate, candidate + 2);
      to.baseline_rounds.insert(to.baseline_rounds.end(), 2, round);
      to.candidate_rounds.insert(to.candidate_rounds.end(), 2, round);
    };
    add(all[process].slower, base, more);
    add(all[process].same, base, again);
  }
  return all;
}

/// Experiments of three looks (10, 20, 40 processes) drawn from `log_ratios`, with the noise floor
/// of `same`, called `wanted`.
int called(AbVerdict wanted, const std::vector<PairedRatio>& log_ratios,
           const std::vector<PairedRatio>& same, int experiments) {
  constexpr int64_t kLooks = 3;
  Random random(2025);
  int hits = 0;
  for (int e = 0; e < experiments; ++e) {
    std::vector<double> ratios, floor;
    AbVerdict verdict = AbVerdict::kInconclusive;
    for (int look = 0; look < kLooks && verdict == AbVerdict::kInconclusive; ++look) {
      for (int wanted_n = kProcesses << look; static_cast<int>(ratios.size()) < wanted_n;) {
        ratios.push_back(log_ratios[random.below(log_ratios.size())].log_ratio);
        floor.push_back(same[random.below(same.size())].log_ratio);
      }
      verdict =
          compare_arms(ratios, kCpuMargin, noise_floor(floor).floor, level_each(kLooks)).verdict;
    }
    hits += verdict == wanted;
  }
  return hits;
}

TEST(AbSimulation, FindsInjectedSlowdownOnABusyMachine) {
  const auto ratios_of = [](const std::vector<BusyProcess>& all, ArmTimes BusyProcess::* arm) {
    std::vector<ArmTimes> times;
    for (const BusyProcess& one : all) times.push_back(one.*arm);
    return paired_log_ratios(times);
  };
  const auto busy = busy_machine(20);
  ASSERT_EQ(busy.size(), 60u);
  const auto slower = ratios_of(busy, &BusyProcess::slower),
             same = ratios_of(busy, &BusyProcess::same);
  const int found = called(AbVerdict::kSlower, slower, same, 200);
  const int alarms =
      called(AbVerdict::kSlower, same, same, 200) + called(AbVerdict::kFaster, same, same, 200);
  const auto three = busy_machine(3);
  const int found_by_three = called(AbVerdict::kSlower, ratios_of(three, &BusyProcess::slower),
                                    ratios_of(three, &BusyProcess::same), 200);
  std::cout << "busy machine: +15 % called SLOWER in " << found << " of 200, with 3 rounds in "
            << found_by_three << "; false alarms " << alarms << " of 200\n";
  EXPECT_GE(found, 190);
  EXPECT_EQ(alarms, 0);
  EXPECT_LT(found_by_three, 100) << "the test could not show a difference";
}

TEST(AbSimulation, NeverCallsASlowdownFaster) {
  EXPECT_EQ(count(AbVerdict::kFaster, kTypical, std::log(1.03), kGpuMargin, 200, 5), 0);
  EXPECT_EQ(count(AbVerdict::kFaster, kNoisy, std::log(1.03), kGpuMargin, 200, 6), 0);
}

/// Symmetric differences about `centre`: normal, and heavy-tailed (a quotient of two normals).
double draw(Random& random, bool heavy_tail) {
  const double z = random.normal();
  return heavy_tail ? z / (.2 + std::abs(random.normal())) : z;
}

TEST(SignedRankSimulation, CoverageOfThe95PercentInterval) {
  for (const bool heavy_tail : {false, true}) {
    Random random(heavy_tail ? 11 : 12);
    const double centre = .25;
    int held = 0;
    for (int experiment = 0; experiment < 2000; ++experiment) {
      std::vector<double> d;
      for (int i = 0; i < kProcesses; ++i) d.push_back(centre + draw(random, heavy_tail));
      const auto interval = signed_rank_interval(d, kShownLevel);
      ASSERT_TRUE(interval);
      if (interval->lo <= centre && centre <= interval->hi) ++held;
    }
    std::cout << "coverage of the 95 % interval: " << held / 20.0 << " %\n";
    EXPECT_GE(held, 1860);
    EXPECT_LE(held, 1940);
  }
}

}  // namespace
}  // namespace harness::stats
