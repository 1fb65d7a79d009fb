#include "harness/history/history.h"

#include <sqlite3.h>

#include <algorithm>

#include "harness/evidence/derive/baselines.h"
#include "harness/schema/error.h"

namespace harness {
namespace {

constexpr int kVersion = 1;
constexpr const char* kTables =
    "CREATE TABLE IF NOT EXISTS runs (head TEXT PRIMARY KEY, id TEXT, started TEXT, runbook TEXT,"
    " hardware TEXT, build_id TEXT, verdict TEXT);"
    "CREATE TABLE IF NOT EXISTS figures (head TEXT REFERENCES runs(head), metric TEXT, value REAL,"
    " lo REAL, hi REAL, n INTEGER, unit TEXT, PRIMARY KEY (head, metric));"
    "PRAGMA user_version = 1;";

/// One prepared statement; values are bound, never pasted into the text.
class Statement {
 public:
  Statement(sqlite3* db, const char* sql) : db_(db) {
    if (sqlite3_prepare_v2(db, sql, -1, &statement_, nullptr) != SQLITE_OK) fail();
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& bind(const std::string& text) {
    sqlite3_bind_text(statement_, ++bound_, text.c_str(), static_cast<int>(text.size()),
                      SQLITE_TRANSIENT);
    return *this;
  }
  Statement& bind(const std::optional<double>& value) {
    if (value)
      sqlite3_bind_double(statement_, ++bound_, *value);
    else
      sqlite3_bind_null(statement_, ++bound_);
    return *this;
  }
  Statement& bind(int64_t value) {
    sqlite3_bind_int64(statement_, ++bound_, value);
    return *this;
  }
  /// True while there is a row.
  bool step() {
    const int code = sqlite3_step(statement_);
    if (code != SQLITE_ROW && code != SQLITE_DONE) fail();
    return code == SQLITE_ROW;
  }
  std::string text(int column) const {
    const auto* found = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    return found == nullptr ? "" : found;
  }
  double number(int column) const { return sqlite3_column_double(statement_, column); }
  int64_t integer(int column) const { return sqlite3_column_int64(statement_, column); }

 private:
  [[noreturn]] void fail() const {
    const int code = sqlite3_errcode(db_);
    const bool damaged = code == SQLITE_CORRUPT || code == SQLITE_NOTADB;
    const char* file = sqlite3_db_filename(db_, "main");
    throw Error(std::string("history: ") + sqlite3_errmsg(db_) +
                (damaged && file != nullptr
                     ? " in " + std::string(file) + "; remove it and import the runs again"
                     : ""));
  }
  sqlite3* db_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
};

HistoryRun run_of(const Statement& row) {
  return {row.text(0), row.text(1), row.text(2), row.text(3),
          row.text(4), row.text(5), row.text(6)};
}

std::string build_of(const nlohmann::json& environment) {
  const auto id = environment.value("/build/build_id"_json_pointer, nlohmann::json());
  return id.is_string() ? id.get<std::string>() : "";
}

void require_version(sqlite3* db, const std::filesystem::path& file) {
  Statement version(db, "PRAGMA user_version");
  version.step();
  if (version.integer(0) == 0 || version.integer(0) == kVersion) return;
  throw Error("history " + file.string() + " is of version " + std::to_string(version.integer(0)) +
              ", this program has " + std::to_string(kVersion) +
              "; remove it and import the runs again");
}

bool has_tables(sqlite3* db) {
  Statement tables(db, "SELECT count(*) FROM sqlite_master WHERE name IN ('runs', 'figures')");
  return tables.step() && tables.integer(0) == 2;
}

/// A damaged file is a cache to be made anew; where there is no room or no right, nothing is wrong
/// with it.
std::string remedy_of(int code) {
  switch (code) {
    case SQLITE_FULL:
      return "; make room and call this again";
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
      return "; name a file that may be written with --db";
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return "; another program writes to it: call this again";
    default:
      return "; remove it and import the runs again";
  }
}

void find_trend_steps(Trend& trend) {
  std::vector<double> values;
  for (const HistoryPoint& point : trend.points) values.push_back(point.value);
  if (std::ranges::all_of(values, [](double v) { return v > 0; }))
    trend.steps = stats::find_steps(values);
}

}  // namespace

History::History(const std::filesystem::path& file) {
  if (sqlite3_open(file.c_str(), &db_) != SQLITE_OK) {
    const std::string why = sqlite3_errmsg(db_);
    sqlite3_close(db_);
    throw Error("history " + file.string() + " cannot be opened: " + why);
  }
  try {
    sqlite3_busy_timeout(db_, 5000);
    require_version(db_, file);
    if (!has_tables(db_)) execute(kTables);  // else nothing is written to read it
  } catch (const Error& e) {
    const std::string remedy = remedy_of(sqlite3_errcode(db_));
    sqlite3_close_v2(db_);
    const std::string text = e.what();
    throw Error(text.find(file.string()) != std::string::npos
                    ? text
                    : text + " in " + file.string() + remedy);
  }
}

History::~History() { sqlite3_close(db_); }

void History::execute(const std::string& sql) const {
  char* message = nullptr;
  if (sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, &message) == SQLITE_OK) return;
  const std::string why = message == nullptr ? "unknown" : message;
  sqlite3_free(message);
  throw Error("history: " + why);
}

bool History::add(const Results& results, const std::string& head) {
  execute("BEGIN IMMEDIATE");
  try {
    Statement known(db_, "SELECT 1 FROM runs WHERE head = ?");
    const bool is_new = !known.bind(head).step();
    if (is_new) {
      Statement run(db_, "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)");
      run.bind(head).bind(results.run.id).bind(results.run.started).bind(results.run.runbook);
      run.bind(hardware_key(results.environment)).bind(build_of(results.environment));
      run.bind(results.verdict.word).step();
      for (const Metric& metric : results.metrics) {
        if (!metric.value || !metric.withheld.empty()) continue;
        Statement figure(db_, "INSERT INTO figures VALUES (?, ?, ?, ?, ?, ?, ?)");
        figure.bind(head).bind(metric.name).bind(metric.value).bind(metric.lo).bind(metric.hi);
        figure.bind(metric.n).bind(metric.unit).step();
      }
    }
    execute("COMMIT");
    return is_new;
  } catch (const Error&) {
    execute("ROLLBACK");
    throw;
  }
}

std::vector<HistoryRun> History::runs() const {
  Statement rows(db_,
                 "SELECT id, started, runbook, hardware, build_id, verdict, head FROM runs"
                 " ORDER BY started, head");
  std::vector<HistoryRun> found;
  while (rows.step()) found.push_back(run_of(rows));
  return found;
}

std::vector<Trend> History::trends(const std::string& metric) const {
  Statement rows(db_,
                 "SELECT r.id, r.started, r.runbook, r.hardware, r.build_id, r.verdict, r.head,"
                 " f.value, f.unit FROM runs r JOIN figures f ON f.head = r.head"
                 " WHERE f.metric = ? ORDER BY r.runbook, r.hardware, r.started, r.head");
  rows.bind(metric);
  std::vector<Trend> trends;
  while (rows.step()) {
    const HistoryPoint point{run_of(rows), rows.number(7), rows.text(8)};
    const bool same = !trends.empty() && trends.back().runbook == point.run.runbook &&
                      trends.back().hardware == point.run.hardware;
    if (!same) trends.push_back({point.run.runbook, point.run.hardware, {}, {}});
    trends.back().points.push_back(point);
  }
  for (Trend& trend : trends) find_trend_steps(trend);
  return trends;
}

}  // namespace harness
