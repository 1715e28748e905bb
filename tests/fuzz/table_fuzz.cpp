// A table, its prompt template and options. Records and fields equal what a plain reader of RFC 4180 finds, a row is a job or an error, and
// the output has the row's fields beside the result.
#include <sys/mman.h>
#include <unistd.h>

#include <optional>
#include <vector>

#include "consumer/file/reader.h"
#include "consumer/file/table_csv.h"
#include "consumer/file/table_rows.h"
#include "tests/fuzz/fuzz_input.h"

namespace lorry::consumer {
namespace {

using schema::Json;
using Fields = std::vector<std::string>;

// A file in memory.
class MemoryFile {
public:
    explicit MemoryFile(std::string_view text) : descriptor_(memfd_create("table", MFD_CLOEXEC)) {
        CHECK(descriptor_ >= 0, "there is a file in memory");
        CHECK(write(descriptor_, text.data(), text.size()) == std::ssize(text), "the table is written");
    }
    ~MemoryFile() { close(descriptor_); }
    MemoryFile(const MemoryFile&) = delete;
    MemoryFile& operator=(const MemoryFile&) = delete;
    std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

private:
    int descriptor_;
};

// nullopt: refused as a whole, such as a file of another kind; or compressed, so that the plain reader would find other records.
std::optional<std::vector<std::string>> records_of(std::string_view text, bool csv) {
    if (text.starts_with("\x1F\x8B") || text.starts_with("\x28\xB5\x2F\xFD")) return std::nullopt;
    const MemoryFile file(text);
    std::vector<std::string> records;
    try {
        FileReader reader(file.path(), {.records = csv ? RecordFormat::csv : RecordFormat::lines}, 1 << 20);
        while (auto record = reader.next(std::chrono::milliseconds(1000))) records.push_back(std::move(record->text));
    } catch (const InputError& error) {
        fuzz::check_message(error.what());
        return std::nullopt;
    }
    return records;
}

// One field from `at` on, which ends up after it. quoted: it begins with a quote, and what follows its last quote is left out.
std::string plain_field(std::string_view text, std::size_t& at) {
    std::string field;
    if (at < text.size() && text[at] == '"') {
        for (++at; at < text.size(); ++at) {
            if (text[at] == '"' && (++at >= text.size() || text[at] != '"')) break;
            field += text[at];
        }
        while (at < text.size() && text[at] != ',' && text[at] != '\n') ++at;
        return field;
    }
    while (at < text.size() && text[at] != ',' && text[at] != '\n') field += text[at++];
    return field;
}

bool is_blank(std::string_view record) { return record.find_first_not_of(" \t\r") == record.npos; }

std::vector<std::string> plain_records(std::string_view text, bool csv) {
    if (text.starts_with(schema::byte_order_mark)) text.remove_prefix(schema::byte_order_mark.size());
    std::vector<std::string> records;
    for (std::size_t at = 0; at < text.size(); ++at) {
        const std::size_t begin = at;
        if (csv) {
            plain_field(text, at);
            while (at < text.size() && text[at] == ',') plain_field(text, ++at);
        } else {
            at = std::min(text.find('\n', at), text.size());
        }
        std::string_view record = text.substr(begin, at - begin);
        if (is_blank(record)) continue;
        if (record.ends_with('\r')) record.remove_suffix(1);
        records.emplace_back(record);
    }
    return records;
}

void check_fields(std::string_view record) {
    const auto fields = parse_csv_record(record);
    if (!fields) {
        fuzz::check_message(fields.error());
        return;
    }
    CHECK(parse_csv_record(encode_csv_record(*fields)).value() == *fields, "fields that were written read back equal");
    if (record.find('\n') != record.npos) return;  // the plain reader would end there
    Fields plain;
    std::size_t at = 0;
    plain.push_back(plain_field(record, at));
    while (at < record.size()) plain.push_back(plain_field(record, ++at));
    CHECK(plain == *fields, "both readers find the same fields");
}

void check_output(const TableOptions& options, const std::string& row, const std::string& output, std::size_t columns) {
    CHECK(output.ends_with('\n'), "a row ends with its line");
    const std::string_view line(output.data(), output.size() - 1);
    if (!options.csv) {
        const auto written = Json::parse(line);
        CHECK(written && written->is_object(), "a row's result is JSON");
        const auto json = Json::parse(row);
        if (!json || !json->is_object()) return;
        for (const auto& [name, value] : *json->as_object()) {
            const bool is_result = name == "result" || name == "error" || name == "label" || name == "probability";
            CHECK(is_result || written->find(name)->dump() == value.dump(), "the row's members stay");
        }
        return;
    }
    const auto written = parse_csv_record(line);
    CHECK(written, "the output is CSV");
    CHECK(written->size() == columns + (options.choices.empty() ? 2 : 3), "the output has the row's columns and the result's");
    const auto fields = parse_csv_record(row);
    if (!fields || fields->size() != columns) return;
    CHECK(std::equal(fields->begin(), fields->end(), written->begin()), "the row's fields stay");
}

void try_row(const Table& table, const TableOptions& options, const std::string& row, std::size_t columns) {
    Delivery delivery;
    delivery.record.source = {"t", 0, 1};
    table.read_row(row, delivery);
    CHECK(Json::parse(*delivery.record.value).has_value(), "a row becomes a line of JSON");
    schema::JobError error{.code = schema::ErrorCode::invalid_row, .param = "", .message = "refused"};
    if (delivery.refusal) {
        fuzz::check_message(delivery.refusal->message);
        error = *delivery.refusal;
    } else if (const auto job = schema::parse_job(delivery.record, {}); !job) {
        fuzz::check_message(job.error().error.message);
        error = job.error().error;
    }
    schema::Completion completion{.id = "r", .custom_id = "x", .run = {}, .body = {}, .failure = {}, .headers = {}};
    schema::set_error(completion, error);
    check_output(options, row, table.output_row(row, completion), columns);
    check_output(options, row,
                 table.output_row(row, schema::DeadLetter{.source = {"t", 0, 1}, .key = {}, .value = {}, .headers = {}, .error = error}),
                 columns);
}

void try_table(std::string_view flags, std::string_view prompt_template, std::string_view text) {
    const auto has = [&](char flag) { return flags.find(flag) != flags.npos; };
    TableOptions options{.csv = !has('j'), .id_column = "id", .prompt_template = std::string(prompt_template), .system = {}, .choices = {}};
    if (has('c')) {
        options.task = RowTask::choose;
        options.choices = {"yes", "no"};
    }
    if (has('m')) options.model_column = "m";
    options.chat = !has('t');
    const auto records = records_of(text, options.csv);
    if (!records) return;
    CHECK(*records == plain_records(text, options.csv), "both readers find the same records");
    if (options.csv) std::ranges::for_each(*records, check_fields);
    const std::size_t header = options.csv && !records->empty() ? 1 : 0;
    const std::string first = header > 0 ? records->front() : "";
    try {
        const Table table(options, first);
        const std::size_t columns = options.csv ? parse_csv_record(first)->size() : 0;
        for (std::size_t i = header; i < records->size(); ++i) try_row(table, options, (*records)[i], columns);
    } catch (const InputError& error) {
        fuzz::check_message(error.what());
    }
}

}  // namespace
}  // namespace lorry::consumer

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto [flags, prompt_template, text] = lorry::fuzz::parts_of<3>(lorry::fuzz::text_of(data, size));
    lorry::consumer::try_table(flags, prompt_template, text);
    return 0;
}
