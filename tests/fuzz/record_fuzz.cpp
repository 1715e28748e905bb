// Records of the topics that workers, gateways and commands follow: statuses, registrations, cancels, keys and results. What is accepted
// reads back equal when it is written again.
#include "schema/codec.h"
#include "schema/key.h"
#include "tests/fuzz/fuzz_input.h"

namespace lorry::schema {
namespace {

template <typename Parse, typename Encode>
void check(std::string_view text, const Parse& parse, const Encode& encode) {
    const auto record = parse(text);
    if (!record) {
        fuzz::check_message(record.error());
        return;
    }
    const std::string written = encode(*record);
    const auto again = parse(written);
    CHECK(again && encode(*again) == written, "a record reads back equal");
}

// Each integer of the record, as far as the reader keeps it.
void check_status(std::string_view text) {
    check(text, parse_status, encode_status);
    const auto status = parse_status(text);
    if (!status) return;
    const auto json = Json::parse(text);
    const Json* source = json->find("source");
    const Json* partition = source == nullptr ? nullptr : source->find("partition");
    if (partition == nullptr || partition->is_null()) return;
    CHECK(partition->as_integer() == status->run.source.partition, "a partition keeps its number, or is refused");
}

void check_answer(std::string_view text) {
    const auto answer = parse_answer(text);
    if (!answer) {
        fuzz::check_message(answer.error());
        return;
    }
    CHECK(answer->failure || (answer->status_code >= 200 && answer->status_code < 600), "an answer has a failure or a status");
}

void check_result(std::string_view text) {
    const auto result = parse_result(text);
    if (!result) {
        fuzz::check_message(result.error());
        return;
    }
    CHECK(result->ok == result->error.empty(), "a result is a success or has an error");
}

}  // namespace
}  // namespace lorry::schema

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    namespace schema = lorry::schema;
    const std::string_view text = lorry::fuzz::text_of(data, size);
    schema::check_status(text);
    schema::check(text, schema::parse_adapter, schema::encode_adapter);
    schema::check(
        text, [](std::string_view value) { return schema::parse_cancel(value, {}); }, schema::encode_cancel);
    schema::check_result(text);
    schema::check(text, schema::parse_key, schema::encode_key);
    schema::check_answer(text);
    return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t size_max, unsigned seed) {
    return lorry::fuzz::mutate_json(data, size, size_max, seed);
}
