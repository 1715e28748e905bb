// A ledger's SQLite file. Whatever it contains, it is read, changed or refused with a message that names the file.
#include <stdexcept>

#include "schema/codec.h"
#include "schema/store/store.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/support/temp_folder.h"

namespace lorry::schema {
namespace {

void read(const Store& store) {
    static_cast<void>(store.cluster_id());
    static_cast<void>(store.offsets());
    for (const Status& status : store.jobs({})) static_cast<void>(encode_status(status));
    static_cast<void>(store.count({.id = {}, .batch_id = "b", .state = JobState::running, .model = {}}));
    for (const AdapterRow& row : store.adapters()) static_cast<void>(encode_adapter(row.registration));
}

void change(Store& store) {
    Status status;
    status.run = {.job_id = "j", .batch_id = "b", .model = "m", .adapter = "", .worker = "w", .source = {"t", 1, 2}, .attempt = 3};
    status.run.finished = Timestamp();
    status.state = JobState::completed;
    const AdapterRegistration adapter{.name = "a", .hash = "h", .path = "p", .base = "b", .rank_max = 8, .targets = {"x"}, .bytes = 1};
    store.set_cluster_id("c");
    store.apply({.statuses = {status}, .adapters = {{"a", adapter}, {"gone", {}}}, .offsets = {{"t", "i", 0, 5}}});
    store.set_adapter_state("a", "h", "ready", "");
    read(store);
    store.forget_jobs(Timestamp(std::chrono::milliseconds(1)), 10);
    store.reset();
}

// False if the file was refused.
template <typename Use>
bool with_store(const std::filesystem::path& file, Store::Mode mode, const Use& use) {
    try {
        Store store = Store::open(file, mode);
        use(store);
        return true;
    } catch (const std::runtime_error& error) {
        fuzz::check_message(error.what());
        CHECK(std::string_view(error.what()).find(file.filename().string()) != std::string_view::npos, "the message names the file");
        return false;
    }
}

}  // namespace
}  // namespace lorry::schema

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using lorry::schema::Store;
    static const lorry::tests::TempFolder folder;
    const auto file = folder / "ledger.sqlite";
    std::filesystem::remove(folder / "ledger.sqlite-wal");
    std::filesystem::remove(folder / "ledger.sqlite-shm");
    lorry::tests::write_text(file, std::string(lorry::fuzz::text_of(data, size)));
    const bool is_readable = lorry::schema::with_store(file, Store::Mode::reader, lorry::schema::read);
    // Writing takes ten times as long, and few of the files that cannot be read can be written: those of an earlier version.
    constexpr std::uint8_t some = 32;
    if (is_readable || size == 0 || data[size / 2] < some) lorry::schema::with_store(file, Store::Mode::writer, lorry::schema::change);
    return 0;
}
