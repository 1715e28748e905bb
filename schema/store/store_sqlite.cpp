// Calls SQLite: handles, binding, and errors that say what to do.
#include "schema/store/store_sqlite.h"

#include <fmt/format.h>
#include <sqlite3.h>
#include <stdexcept>

#include "schema/check.h"
#include "schema/json.h"

namespace lorry::schema {
namespace {

constexpr int busy_timeout_ms = 10'000;

// Rolled back in memory: nobody reads the file after a crash. What does not fit into the cache makes SQLite open the file now, so that a
// machine that has no place for it is refused at the start.
constexpr const char* prepare_temporary_file = R"(
PRAGMA journal_mode = MEMORY;
PRAGMA cache_size = 1;
CREATE TABLE probe (bytes BLOB);
INSERT INTO probe VALUES (zeroblob(1048576));
DROP TABLE probe;
PRAGMA cache_size = -8192;
)";

const char* advice_for_temporary(int code) {
    if ((code & 0xff) == SQLITE_NOMEM) return "give this process more memory and start again; nothing is lost, the topics hold it";
    return "see that the folder of temporary files (SQLITE_TMPDIR, TMPDIR, /var/tmp or /tmp) may be written and has space, and start "
           "again; nothing is lost, the topics hold it";
}

const char* advice_for_ledger(int code) {
    switch (code & 0xff) {
        case SQLITE_FULL: return "free some space on its disk and start again; nothing is lost, the topics hold it";
        case SQLITE_IOERR: return "check its disk's space, quota and health and start again; nothing is lost, the topics hold it";
        case SQLITE_READONLY:
        case SQLITE_PERM:
        case SQLITE_AUTH: return "give this user the right to write the file and its folder, or choose another place";
        case SQLITE_CANTOPEN: return "check that its folder exists and that this user may read and write there";
        case SQLITE_BUSY:
        case SQLITE_LOCKED: return "another program keeps it locked (a backup or an open sqlite3 shell?): end that and start again";
        case SQLITE_NOTADB:
        case SQLITE_CORRUPT:
            return "stop the worker and move the file and its -wal and -shm aside: the ledger is a view and is rebuilt from the topics";
        default: return "if it stays so, stop the worker and move the file aside: the ledger is rebuilt from the topics";
    }
}

}  // namespace

Query::~Query() {
    // Errors were reported by step() already.
    sqlite3_reset(statement_);
    sqlite3_clear_bindings(statement_);
}

Query& Query::bind(std::string_view text) {
    // An empty view may have a null pointer, which SQLite would bind as NULL.
    const char* data = text.data() == nullptr ? "" : text.data();
    const int code = sqlite3_bind_text64(statement_, ++bound_, data, text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
    if (code != SQLITE_OK) database_.fail("bind a text");
    return *this;
}

Query& Query::bind(std::int64_t integer) {
    if (sqlite3_bind_int64(statement_, ++bound_, integer) != SQLITE_OK) database_.fail("bind a number");
    return *this;
}

Query& Query::bind(std::optional<std::int64_t> integer) {
    if (integer) return bind(*integer);
    ++bound_;  // unbound is NULL
    return *this;
}

Query& Query::bind_null_if_empty(std::string_view text) {
    if (!text.empty()) return bind(text);
    ++bound_;
    return *this;
}

bool Query::step() {
    const int code = sqlite3_step(statement_);
    if (code == SQLITE_ROW) return true;
    if (code != SQLITE_DONE) database_.fail(sqlite3_stmt_readonly(statement_) != 0 ? "read" : "write");
    return false;
}

void Query::run() { CHECK(!step(), "a statement without rows had one"); }

std::string Query::text(int column) const {
    const auto* bytes = sqlite3_column_text(statement_, column);
    if (bytes == nullptr) return {};
    return {reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
}

std::int64_t Query::integer(int column) const { return sqlite3_column_int64(statement_, column); }

std::optional<std::int64_t> Query::optional_integer(int column) const {
    if (sqlite3_column_type(statement_, column) == SQLITE_NULL) return std::nullopt;
    return integer(column);
}

Database::Database(std::filesystem::path file, Access access) : file_(std::move(file)) {
    open(file_.c_str(), access == Access::write ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY);
    sqlite3_busy_timeout(connection_.get(), busy_timeout_ms);
}

Database::Database(Place place) {
    // An empty name is SQLite's for a file that it deletes as it opens it.
    open(place == Place::memory ? ":memory:" : "", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    if (place == Place::temporary_file) execute(prepare_temporary_file);
}

void Database::open(const char* name, int flags) {
    sqlite3* connection = nullptr;
    const int code = sqlite3_open_v2(name, &connection, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nullptr);
    connection_.reset(connection);
    if (connection == nullptr) throw std::runtime_error(fmt::format("{}: not enough memory to open it", name));
    if (code != SQLITE_OK) fail("open");
}

Query Database::query(const std::string& sql) {
    auto& statement = statements_[sql];
    if (!statement) {
        sqlite3_stmt* prepared = nullptr;
        if (sqlite3_prepare_v3(connection_.get(), sql.c_str(), -1, SQLITE_PREPARE_PERSISTENT, &prepared, nullptr) != SQLITE_OK) {
            statements_.erase(sql);
            fail("read the tables of");
        }
        statement.reset(prepared);
    }
    CHECK(sqlite3_stmt_busy(statement.get()) == 0, "a statement is used while it still runs");
    return {*this, statement.get()};
}

void Database::execute(const std::string& sql) {
    if (sqlite3_exec(connection_.get(), sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) fail("change");
}

std::int64_t Database::integer_pragma(const std::string& name) {
    Query pragma = query("PRAGMA " + name);
    return pragma.step() ? pragma.integer(0) : 0;
}

void Database::fail(std::string_view doing) const {
    const int code = sqlite3_extended_errcode(connection_.get());
    const std::string name = file_.empty() ? "a temporary database" : "the ledger " + file_.string();
    throw std::runtime_error(fmt::format("cannot {} {}: {} (SQLite {}); {}", doing, name, repair_utf8(sqlite3_errmsg(connection_.get())),
                                         code, file_.empty() ? advice_for_temporary(code) : advice_for_ledger(code)));
}

void Database::Close::operator()(sqlite3* connection) const { sqlite3_close_v2(connection); }
void Database::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Transaction::Transaction(Database& database) : database_(database) {
    // IMMEDIATE: waits for other writers here, where the busy timeout applies, and not in the middle.
    database_.execute("BEGIN IMMEDIATE");
}

Transaction::~Transaction() {
    if (!open_) return;
    try {
        database_.execute("ROLLBACK");
    } catch (const std::runtime_error&) {
        // SQLite already rolled back by itself, as it does when the disk is full.
    }
}

void Transaction::commit() {
    database_.execute("COMMIT");
    open_ = false;
}

}  // namespace lorry::schema
