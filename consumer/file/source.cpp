// Converts records of files and tables to deliveries; see source.h.
#include "consumer/file/source.h"

#include <algorithm>
#include <random>
#include <thread>

#include <fmt/format.h>

#include "schema/codec_error.h"

namespace lorry::consumer {
namespace {

// Total bytes that one poll() returns: large lines are delivered one at a time.
constexpr std::size_t poll_bytes_max = 4 << 20;
constexpr std::uint64_t sample_seed = 1;

std::optional<std::string> custom_id_of(const schema::JobRecord& record) { return schema::scan_string_member(*record.value, "custom_id"); }

}  // namespace

FileSource::FileSource(FileSourceOptions options)
    : options_(std::move(options)), reader_(options_.file, options_.format, options_.record_bytes_max) {
    if (options_.format.records == RecordFormat::csv)
        reader_.next(std::chrono::seconds(60));  // skips the header, which the table has already read
}

std::vector<Delivery> FileSource::poll(std::chrono::milliseconds timeout, std::size_t max, RevocationHandler&) {
    const Clock::time_point deadline = Clock::now() + timeout;
    std::vector<Delivery> deliveries;
    if (max == 0 || reader_.is_at_end()) {
        std::this_thread::sleep_until(std::min(deadline, Clock::now() + std::chrono::milliseconds(5)));
        return deliveries;
    }
    std::size_t bytes = 0;
    while (deliveries.size() < max && bytes < poll_bytes_max && Clock::now() < deadline) {
        // Available records are delivered before waiting for more.
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
        auto record = reader_.next(deliveries.empty() ? left : std::chrono::milliseconds(0));
        if (!record) break;
        ++read_;
        bytes += record->text.size();
        if (auto delivery = delivery_of(std::move(*record))) deliveries.push_back(std::move(*delivery));
    }
    return deliveries;
}

std::optional<Delivery> FileSource::delivery_of(FileRecord record) {
    const std::int64_t offset = record.line - 1;
    if (options_.chosen && !options_.chosen->contains(offset)) return std::nullopt;
    Delivery delivery;
    delivery.record.source = {.topic = options_.topic, .partition = 0, .offset = offset};
    std::optional<std::string> empty_column;
    if (options_.table != nullptr) {
        empty_column = options_.table->read_row(std::move(record.text), delivery);
    } else {
        delivery.record.value = std::move(record.text);
    }
    if (record.cut) {
        delivery.refusal =
            schema::JobError{.code = schema::ErrorCode::payload_too_large,
                             .param = {},
                             .message = fmt::format("the line is longer than {} bytes: shorten or split it", options_.record_bytes_max)};
    }
    const auto id = custom_id_of(delivery.record);
    if (id && !ids_.add(*id, record.line) && !delivery.refusal) {
        const std::string name = options_.table != nullptr ? options_.table->id_column() : "custom_id";
        delivery.refusal = schema::JobError{.code = schema::ErrorCode::duplicate_custom_id,
                                            .param = name,
                                            .message = fmt::format("line {} has the same {} as line {}, '{}': give each its own",
                                                                   record.line, name, ids_.place_of(*id), schema::shortened(*id))};
    }
    if (options_.done.contains(offset)) return std::nullopt;
    if (empty_column && !delivery.refusal && ++empty_cells_.rows == 1) {
        empty_cells_.first_line = record.line;
        empty_cells_.first_column = std::move(*empty_column);
    }
    return delivery;
}

std::optional<std::int64_t> FileSource::backlog() {
    if (!options_.total) return std::nullopt;
    return std::max<std::int64_t>(*options_.total - read_, 0);
}

void FileSource::close(RevocationHandler& handler, Clock::time_point deadline) {
    handler.drain({{.topic = options_.topic, .partition = 0, .epoch = 0}}, deadline);
}

RecordSet spread_sample(const std::filesystem::path& file, FileFormat format, std::int64_t count, std::int64_t total) {
    RecordSet chosen;
    FileReader reader(file, format, 0);
    if (format.records == RecordFormat::csv) reader.next(std::chrono::seconds(60));
    // Picks a random record of each stretch, because files often repeat themselves every so many lines.
    std::mt19937_64 random(sample_seed);
    const std::int64_t stretches = std::min(count, total);
    const auto begin_of = [&](std::int64_t stretch) { return stretch * total / stretches; };
    std::int64_t taken = 0;
    std::int64_t next = -1;
    for (std::int64_t seen = 0; taken < stretches; ++seen) {
        const auto record = reader.next(std::chrono::seconds(60));
        if (!record) break;
        if (seen == begin_of(taken)) {
            const auto length = static_cast<std::uint64_t>(begin_of(taken + 1) - seen);
            next = seen + static_cast<std::int64_t>(random() % length);
        }
        if (seen != next) continue;
        chosen.add(record->line - 1);
        ++taken;
    }
    return chosen;
}

}  // namespace lorry::consumer
