// Implements the reader and the writer with the crate's C functions.
#include "engine/text/parquet.h"

#include <stdexcept>
#include <utility>

#include "engine/text/abi.h"
#include "engine/text/lorry_parquet.h"
#include "schema/json.h"

namespace lorry::engine {
namespace {

using schema::Json;

Json list_of(const std::vector<std::string>& names) { return Json(Json::Array(names.begin(), names.end())); }

std::string_view name_of(ParquetKind kind) {
    switch (kind) {
        case ParquetKind::text: return "text";
        case ParquetKind::boolean: return "boolean";
        case ParquetKind::integer: return "integer";
        case ParquetKind::number: return "number";
        case ParquetKind::vector: return "vector";
        case ParquetKind::entities: return "entities";
    }
    CHECK(false, "a kind is one of these");
}

std::string json_of(const ParquetDescription& description) {
    Json::Array added;
    for (const ParquetColumn& column : description.added) {
        added.push_back(Json::object({{"name", column.name}, {"kind", name_of(column.kind)}}));
    }
    return Json::object({{"input", description.input ? Json(description.input->string()) : Json()},
                         {"columns", list_of(description.columns)},
                         {"added", std::move(added)}})
        .dump();
}

void check(lorry_text_status status, const std::filesystem::path& file, const std::string& error) {
    if (status != LORRY_TEXT_OK) throw std::runtime_error(file.string() + ": " + error);
}

}  // namespace

void ParquetReader::Free::operator()(lorry_parquet_reader* handle) const { lorry_parquet_reader_free(handle); }

Expected<ParquetReader, std::string> ParquetReader::open(const std::filesystem::path& file,
                                                         const std::optional<std::vector<std::string>>& columns) {
    lorry_parquet_reader* handle = nullptr;
    std::string error;
    const std::string name = file.string();
    const std::string chosen = columns ? list_of(*columns).dump() : "null";
    if (lorry_parquet_reader_new(abi::view_of(name), abi::view_of(chosen), &handle, abi::sink_into(error)) != LORRY_TEXT_OK) {
        return unexpected(error);
    }
    return ParquetReader(handle);
}

Expected<ParquetFacts, std::string> ParquetReader::facts() const {
    std::string text;
    std::string error;
    if (lorry_parquet_reader_facts(handle_.get(), abi::sink_into(text), abi::sink_into(error)) != LORRY_TEXT_OK) return unexpected(error);
    const auto json = Json::parse(text);
    CHECK(json, "the crate writes JSON");
    ParquetFacts facts{.columns = {}, .rows = json->find("rows")->as_integer().value()};
    for (const Json& name : *json->find("columns")->as_array()) facts.columns.push_back(*name.as_string());
    return facts;
}

Expected<std::string, std::string> ParquetReader::next() {
    std::string lines;
    std::string error;
    if (lorry_parquet_reader_next(handle_.get(), abi::sink_into(lines), abi::sink_into(error)) != LORRY_TEXT_OK) return unexpected(error);
    return lines;
}

Expected<void, std::string> check_parquet(const std::filesystem::path& file) {
    std::string error;
    const std::string name = file.string();
    if (lorry_parquet_check(abi::view_of(name), abi::sink_into(error)) != LORRY_TEXT_OK) return unexpected(error);
    return {};
}

void ParquetWriter::Free::operator()(lorry_parquet_writer* handle) const { lorry_parquet_writer_free(handle); }

ParquetWriter::ParquetWriter(std::filesystem::path file, const ParquetDescription& description) : file_(std::move(file)) {
    lorry_parquet_writer* handle = nullptr;
    std::string error;
    const std::string name = file_.string();
    const std::string json = json_of(description);
    check(lorry_parquet_writer_new(abi::view_of(name), abi::view_of(json), &handle, abi::sink_into(error)), file_, error);
    handle_.reset(handle);
}

void ParquetWriter::observe(std::string_view row) {
    std::string error;
    check(lorry_parquet_writer_observe(handle_.get(), abi::view_of(row), abi::sink_into(error)), file_, error);
}

void ParquetWriter::add(std::int64_t number, std::string_view row) {
    std::string error;
    check(lorry_parquet_writer_add(handle_.get(), number, abi::view_of(row), abi::sink_into(error)), file_, error);
}

void ParquetWriter::finish() {
    std::string error;
    check(lorry_parquet_writer_finish(handle_.get(), abi::sink_into(error)), file_, error);
}

}  // namespace lorry::engine
