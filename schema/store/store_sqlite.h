// SQLite's C interface as values: a connection with its prepared statements, a running query, a transaction. Only store_sqlite.cpp includes
// SQLite. Called by what is in schema/store. One thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

struct sqlite3;
struct sqlite3_stmt;

namespace lorry::schema {

class Database;

// A prepared statement; bind() binds its parameters in order. The destructor resets it for the next use.
class Query {
public:
    Query(Database& database, sqlite3_stmt* statement) : database_(database), statement_(statement) {}
    ~Query();
    Query(const Query&) = delete;
    Query& operator=(const Query&) = delete;

    Query& bind(std::string_view text);
    Query& bind(std::int64_t integer);
    Query& bind(std::optional<std::int64_t> integer);
    Query& bind_null_if_empty(std::string_view text);

    bool step();  // true: there is a row
    void run();   // for statements without rows

    // Columns of the current row, counted from 0. NULL is "" and 0.
    std::string text(int column) const;
    std::int64_t integer(int column) const;
    std::optional<std::int64_t> optional_integer(int column) const;

private:
    Database& database_;
    sqlite3_stmt* statement_;
    int bound_ = 0;
};

class Database {
public:
    enum class Access : std::uint8_t { read, write };

    // The ledger's file. Write: creates it when it is missing.
    Database(std::filesystem::path file, Access access);

    // Where a database is that belongs to this object alone, and of which nothing is left after it.
    enum class Place : std::uint8_t {
        memory,
        // In a file without a name, in the folder of temporary files, with a cache of 8 MiB.
        temporary_file,
    };
    explicit Database(Place place);

    // Prepared once per text. One use of a text at a time.
    Query query(const std::string& sql);
    // Statements without parameters and rows.
    void execute(const std::string& sql);
    std::int64_t integer_pragma(const std::string& name);

    const std::filesystem::path& file() const { return file_; }  // empty: it is this object's alone
    // Throws std::runtime_error that names the database and the operation, with SQLite's message and what to do.
    [[noreturn]] void fail(std::string_view doing) const;

private:
    struct Close {
        void operator()(sqlite3* connection) const;
    };
    struct Finalize {
        void operator()(sqlite3_stmt* statement) const;
    };

    void open(const char* name, int flags);

    std::filesystem::path file_;
    std::unique_ptr<sqlite3, Close> connection_;
    std::unordered_map<std::string, std::unique_ptr<sqlite3_stmt, Finalize>> statements_;  // by their text
};

// Rolled back unless committed.
class Transaction {
public:
    explicit Transaction(Database& database);
    ~Transaction();
    Transaction(const Transaction&) = delete;
    Transaction& operator=(const Transaction&) = delete;
    void commit();

private:
    Database& database_;
    bool open_ = true;
};

}  // namespace lorry::schema
