// Compresses rows, or hands them to the Parquet writer; the only file that compresses.
#include "consumer/file/packed_output.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <span>

#include <fmt/format.h>

#include "consumer/file/error.h"
#include "consumer/file/journal.h"
#include "consumer/file/sink.h"

namespace lorry::consumer {
namespace {

constexpr std::size_t piece_bytes = 256 << 10;
constexpr int zstd_level = 3;

constexpr const char* unfinished = ".new";

// A file that this scope has open.
class OpenFile {
public:
    OpenFile(std::filesystem::path file, int flags) : file_(std::move(file)), descriptor_(::open(file_.c_str(), flags | O_CLOEXEC, 0644)) {
        if (descriptor_ < 0) fail_file(file_, "opened");
    }
    ~OpenFile() { ::close(descriptor_); }
    OpenFile(const OpenFile&) = delete;
    OpenFile& operator=(const OpenFile&) = delete;

    void write(std::string_view bytes) const { write_all(descriptor_, bytes, file_); }
    void flush() const { flush_to_disk(descriptor_, file_); }
    std::string read(std::int64_t offset, std::size_t size) const {
        std::string bytes(size, '\0');
        for (std::size_t filled = 0; filled < size;) {
            const ssize_t got = ::pread(descriptor_, bytes.data() + filled, size - filled, offset + static_cast<std::int64_t>(filled));
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) fail_file(file_, "read");
            if (got == 0) throw std::runtime_error(fmt::format("{} became shorter while it was read", file_.string()));
            filled += static_cast<std::size_t>(got);
        }
        return bytes;
    }

private:
    std::filesystem::path file_;
    int descriptor_;
};

// Takes text in pieces and appends its compressed form to a string.
class Compressor {
public:
    virtual ~Compressor() = default;
    virtual void add(std::string_view text, bool is_last, std::string& out) = 0;
};

class GzipCompressor final : public Compressor {
public:
    GzipCompressor() {
        constexpr int gzip_format = 16 + MAX_WBITS;
        constexpr int memory_level = 8;
        CHECK(deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, gzip_format, memory_level, Z_DEFAULT_STRATEGY) == Z_OK,
              "zlib has memory for its state");
    }
    ~GzipCompressor() override { deflateEnd(&stream_); }
    GzipCompressor(const GzipCompressor&) = delete;
    GzipCompressor& operator=(const GzipCompressor&) = delete;

    void add(std::string_view text, bool is_last, std::string& out) override {
        stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));  // zlib does not write to it
        stream_.avail_in = static_cast<uInt>(text.size());
        do {
            const std::size_t before = out.size();
            out.resize(before + piece_bytes);
            stream_.next_out = reinterpret_cast<Bytef*>(out.data() + before);
            stream_.avail_out = piece_bytes;
            CHECK(deflate(&stream_, is_last ? Z_FINISH : Z_NO_FLUSH) != Z_STREAM_ERROR, "zlib takes what it is given");
            out.resize(out.size() - stream_.avail_out);
        } while (stream_.avail_out == 0);
    }

private:
    z_stream stream_{};
};

class ZstdCompressor final : public Compressor {
public:
    ZstdCompressor() {
        ZSTD_CCtx_setParameter(stream_.get(), ZSTD_c_compressionLevel, zstd_level);
        ZSTD_CCtx_setParameter(stream_.get(), ZSTD_c_checksumFlag, 1);
    }

    void add(std::string_view text, bool is_last, std::string& out) override {
        ZSTD_inBuffer from{.src = text.data(), .size = text.size(), .pos = 0};
        bool is_done = false;
        while (!is_done) {
            const std::size_t before = out.size();
            out.resize(before + piece_bytes);
            ZSTD_outBuffer to{.dst = out.data() + before, .size = piece_bytes, .pos = 0};
            const std::size_t left = ZSTD_compressStream2(stream_.get(), &to, &from, is_last ? ZSTD_e_end : ZSTD_e_continue);
            CHECK(ZSTD_isError(left) == 0, ZSTD_getErrorName(left));
            out.resize(before + to.pos);
            is_done = is_last ? left == 0 : from.pos == from.size;
        }
    }

private:
    struct Free {
        void operator()(ZSTD_CCtx* stream) const { ZSTD_freeCCtx(stream); }
    };
    std::unique_ptr<ZSTD_CCtx, Free> stream_{ZSTD_createCCtx()};
};

// Where a row is in the file with the rows.
struct Place {
    JournalEntry entry;
    std::int64_t offset = 0;
    std::size_t bytes = 0;  // without line end
};

struct Rows {
    std::string header;         // of CSV, with line end
    std::vector<Place> places;  // in the order of the input
};

// Reads the file once. `visit` is called with each row, in the file's order.
Rows places_of(const PackedOutput& output, const JournalContent& content, const std::function<void(std::string_view)>& visit) {
    FileReader reader(rows_of(output.file), output.rows, std::size_t{1} << 40);
    const auto next = [&] {
        auto record = reader.next(std::chrono::seconds(60));
        if (!record)
            throw std::runtime_error(
                fmt::format("{} has fewer rows than its journal says: start over with --overwrite", rows_of(output.file).string()));
        return std::move(record->text);
    };
    Rows rows;
    if (output.rows.records == RecordFormat::csv) rows.header = next() + "\n";
    auto offset = static_cast<std::int64_t>(rows.header.size());
    for (const JournalEntry& entry : content.entries) {
        const std::string row = next();
        visit(row);
        rows.places.push_back({.entry = entry, .offset = offset, .bytes = row.size()});
        offset += static_cast<std::int64_t>(row.size()) + 1;
    }
    if (offset != content.output_bytes)
        throw std::runtime_error(
            fmt::format("{} was changed since its journal was written: start over with --overwrite", rows_of(output.file).string()));
    std::ranges::sort(rows.places, {}, [](const Place& place) { return place.entry.record; });
    return rows;
}

Rows write_compressed(const PackedOutput& output, const JournalContent& content, const std::filesystem::path& file) {
    Rows rows = places_of(output, content, [](std::string_view) {});
    const OpenFile in(rows_of(output.file), O_RDONLY);
    const OpenFile out(file, O_WRONLY | O_CREAT | O_TRUNC);
    std::unique_ptr<Compressor> compressor;
    if (output.format == PackedFormat::gzip)
        compressor = std::make_unique<GzipCompressor>();
    else
        compressor = std::make_unique<ZstdCompressor>();
    std::string packed;
    const auto add = [&](std::string_view text, bool is_last) {
        compressor->add(text, is_last, packed);
        out.write(packed);
        packed.clear();
    };
    std::string text = rows.header;
    for (const Place& place : rows.places) {
        text += in.read(place.offset, place.bytes + 1);
        if (text.size() < piece_bytes) continue;
        add(text, false);
        text.clear();
    }
    add(text, true);
    out.flush();
    return rows;
}

Rows write_parquet(const PackedOutput& output, const JournalContent& content, const std::filesystem::path& file) {
    engine::ParquetWriter writer(file, output.parquet);
    Rows rows = places_of(output, content, [&](std::string_view row) { writer.observe(row); });
    const OpenFile in(rows_of(output.file), O_RDONLY);
    for (const Place& place : rows.places) writer.add(place.entry.record, in.read(place.offset, place.bytes));
    writer.finish();
    return rows;
}

}  // namespace

std::filesystem::path rows_of(const std::filesystem::path& output) { return with_suffix(output, ".rows"); }

void pack_output(const PackedOutput& output) {
    const JournalContent content = read_journal(journal_of(rows_of(output.file)));
    const std::filesystem::path new_output = with_suffix(output.file, unfinished);
    const std::filesystem::path new_journal = with_suffix(journal_of(output.file), unfinished);
    const Rows rows =
        output.format == PackedFormat::parquet ? write_parquet(output, content, new_output) : write_compressed(output, content, new_output);
    {
        FileJournal journal = FileJournal::create(new_journal, content.identity);
        for (const auto& [name, hash] : content.adapters) journal.note_adapter(name, hash);
        std::vector<JournalEntry> entries;
        for (const Place& place : rows.places) entries.push_back(place.entry);
        journal.append_file(entries, new_output);
        journal.end();
    }
    move_file(new_output, output.file);
    move_file(new_journal, journal_of(output.file));
    remove_rows(output.file);
}

std::int64_t unpack_good(const PackedOutput& output, Retried retried, const RunIdentity& identity) {
    FileFormat format = output.rows;
    if (output.format == PackedFormat::parquet) {
        format.records = RecordFormat::parquet;
        if (output.parquet.input) {  // its columns are copied again
            format.columns.emplace();
            for (const engine::ParquetColumn& column : output.parquet.added) format.columns->push_back(column.name);
        }
    }
    const std::filesystem::path journal = journal_of(rows_of(output.file));
    const std::filesystem::path new_journal = with_suffix(journal, unfinished);
    const std::int64_t dropped = keep_good({.output = output.file,
                                            .format = std::move(format),
                                            .retried = retried,
                                            .identity = identity,
                                            .new_output = rows_of(output.file),
                                            .new_journal = new_journal});
    move_file(new_journal, journal);
    return dropped;
}

std::vector<std::filesystem::path> files_beside(const std::filesystem::path& output) {
    const std::filesystem::path rows = rows_of(output);
    // The journal first: without it, the rows are left from a run that ended.
    std::vector<std::filesystem::path> files = {journal_of(rows), rows, with_suffix(journal_of(rows), unfinished),
                                                with_suffix(output, unfinished), with_suffix(journal_of(output), unfinished)};
    std::ranges::copy(rewritten_files(rows), std::back_inserter(files));
    return files;
}

void remove_rows(const std::filesystem::path& output) {
    for (const auto& file : files_beside(output)) std::filesystem::remove(file);
}

}  // namespace lorry::consumer
