#pragma once
#include <pwd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "nsa/train/ranks_testing.h"

namespace nsa::train {

/// Slurm with several nodes on this machine, of a user's own: munged, slurmctld and a slurmd for
/// each node, with all their files in one folder. Nodes are called by addresses of the loopback
/// interface, 127.0.0.1 upwards: as on a cluster, ranks reach one another by the names of their
/// nodes. The daemons die with the test.
class SlurmCluster {
 public:
  /// The first program that a cluster needs and this machine lacks, with the remedy; or nothing.
  static std::string missing() {
    for (const char* program : {"munged", "mungekey", "slurmctld", "slurmd"})
      if (!fs::exists(sbin(program)))
        return sbin(program) + " is not there: tools/setup --tests installs Slurm and MUNGE";
    return "";
  }

  /// Starts `nodes` of 4 CPUs each and waits until all are idle. Throws std::runtime_error with the
  /// ends of the logs.
  SlurmCluster(fs::path dir, int nodes) : dir_(std::move(dir)), nodes_(nodes) {
    fs::create_directories(dir_ / "state");
    fs::permissions(dir_, fs::perms::owner_all);
    start_munge();
    write_configuration();
    start({sbin("slurmctld"), "-D", "-f", configuration()}, "slurmctld.out");
    for (int node = 1; node <= nodes_; ++node)
      start({sbin("slurmd"), "-D", "-N", name(node), "-f", configuration()},
            "slurmd." + std::to_string(node) + ".out");
    if (!becomes_true("test $(sinfo -h -N -t idle -o %N | wc -l) = " + std::to_string(nodes_), 60))
      fail("not all nodes became idle");
  }
  ~SlurmCluster() {
    shell("scancel --state=RUNNING --signal=KILL --full; scancel --user=$(id -un)");
    becomes_true("test -z \"$(squeue -h)\"", 15);
    for (auto pid = pids_.rbegin(); pid != pids_.rend(); ++pid) {
      kill(*pid, SIGKILL);
      waitpid(*pid, nullptr, 0);
    }
  }
  SlurmCluster(const SlurmCluster&) = delete;
  SlurmCluster& operator=(const SlurmCluster&) = delete;

  /// Shell text in front of Slurm's commands.
  std::string environment() const { return "export SLURM_CONF=" + configuration() + "; "; }
  /// Whether a shell command with Slurm's commands succeeds within `seconds`.
  bool becomes_true(const std::string& command, int seconds) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (std::chrono::steady_clock::now() < end) {
      if (shell(command) == 0) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    return false;
  }
  /// Ends everything on a node at once, as a loss of power does: its daemon, and the task `pid`
  /// with the process that started it.
  void lose_node(int node, pid_t pid) const {
    const std::string task = std::to_string(pid);
    shell("kill -KILL $(ps -o ppid= -p " + task + ") " + task);
    kill(pids_[static_cast<size_t>(node) + 1], SIGKILL);  // behind munged and slurmctld
  }
  /// The last lines of every log.
  std::string logs() const {
    shell("tail -n 8 *.out *.log > all 2> /dev/null");
    std::ifstream in(dir_ / "all");
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  static std::string sbin(const std::string& program) { return "/usr/sbin/" + program; }
  static std::string name(int node) { return "127.0.0." + std::to_string(node); }
  std::string configuration() const { return (dir_ / "slurm.conf").string(); }

  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error("Slurm: " + what + "\n" + logs());
  }

  int shell(const std::string& command) const {
    return std::system(
        ("cd " + dir_.string() + " && { " + environment() + command + "; } > shell.log 2>&1")
            .c_str());
  }

  /// A daemon in the foreground, with its output in `log`.
  void start(const std::vector<std::string>& words, const std::string& log) {
    const std::string path = (dir_ / log).string(), folder = dir_.string();
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::vector<char*> argv;
      for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
      argv.push_back(nullptr);
      if (std::freopen(path.c_str(), "w", stdout) == nullptr || dup2(1, 2) < 0 ||
          chdir(folder.c_str()) != 0)
        _exit(126);
      execv(argv[0], argv.data());
      _exit(127);
    }
    if (pid < 0) fail("cannot start " + words[0]);
    pids_.push_back(pid);
  }

  void start_munge() {
    const std::string key = (dir_ / "munge.key").string();
    if (shell(sbin("mungekey") + " --create --keyfile " + key) != 0) fail("no key of MUNGE");
    std::vector<std::string> words = {sbin("munged"), "--foreground", "--force"};
    for (const char* file : {"key-file", "socket", "pid-file", "log-file", "seed-file"})
      words.push_back("--" + std::string(file) + "=" + file_of_munge(file));
    start(words, "munged.out");
    if (!becomes_true("munge --socket=" + file_of_munge("socket") +
                          " --no-input | unmunge --socket=" + file_of_munge("socket"),
                      20))
      fail("MUNGE does not answer");
  }
  std::string file_of_munge(const std::string& option) const {
    return (dir_ / (option == "key-file" ? "munge.key" : "munge." + option)).string();
  }

  void write_configuration() const {
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    const std::string short_host = std::string(host).substr(0, std::string(host).find('.'));
    const std::string user = getpwuid(getuid())->pw_name, folder = dir_.string();
    std::ofstream out(configuration());
    out << "ClusterName=test\nSlurmctldHost=" << short_host << "(127.0.0.1)\n"
        << "SlurmUser=" << user << "\nSlurmdUser=" << user << "\nSlurmctldPort=" << Port().text()
        << "\nAuthType=auth/munge\nCredType=cred/munge\n"
        // A job that is requeued waits for this long.
        << "AuthInfo=socket=" << file_of_munge("socket") << ",cred_expire=5\n"
        << "StateSaveLocation=" << folder << "/state\nSlurmdSpoolDir=" << folder << "/spool.%n\n"
        << "SlurmctldPidFile=" << folder << "/slurmctld.pid\nSlurmdPidFile=" << folder
        << "/slurmd.%n.pid\nSlurmctldLogFile=" << folder
        << "/slurmctld.log\nSlurmdLogFile=" << folder
        << "/slurmd.%n.log\n"
        // Without rights over the machine: no cgroups, no accounting.
        << "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n"
        << "JobAcctGatherType=jobacct_gather/none\nAccountingStorageType=accounting_storage/none\n"
        << "SlurmdParameters=config_overrides\nMpiDefault=none\nReturnToService=2\n"
        << "SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nSchedulerType=sched/"
           "backfill\n"
        << "SchedulerParameters=sched_interval=1,bf_interval=1\nKillWait=2\nSlurmdTimeout=5\n";
    for (int node = 1; node <= nodes_; ++node)
      out << "NodeName=" << name(node) << " NodeHostname=" << short_host
          << " NodeAddr=" << name(node) << " Port=" << Port().text() << " CPUs=4\n";
    out << "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n";
  }

  fs::path dir_;
  int nodes_;
  std::vector<pid_t> pids_;
};

}  // namespace nsa::train
