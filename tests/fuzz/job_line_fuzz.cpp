// A job line and the headers batch_id, tenant and deadline. A line is a job, or an error of which a completion can be made.
#include "schema/codec.h"
#include "tests/fuzz/fuzz_input.h"

namespace lorry::schema {
namespace {

JobRecord record_of(std::string_view line, std::array<std::string_view, 3> headers) {
    JobRecord record{.source = {"t", 0, 7}, .key = {}, .value = std::string(line), .headers = {}, .timestamp = {}};
    const std::string_view names[] = {batch_id_header, tenant_header, deadline_header};
    for (std::size_t i = 0; i < headers.size(); ++i) {
        if (!headers[i].empty()) record.headers.emplace_back(names[i], headers[i]);
    }
    return record;
}

void check_job(const Job& job) {
    CHECK(!job.custom_id.empty() && !job.model.empty(), "a job has a name and a model");
    CHECK(is_valid_utf8(job.custom_id) && is_valid_utf8(job.model) && is_valid_utf8(job.id), "names are UTF-8");
    CHECK(job.n >= 1, "a job asks for an answer");
    if (const auto* chat = std::get_if<ChatPrompt>(&job.prompt)) {
        CHECK(Json::parse(chat->messages).has_value(), "messages are JSON");
        CHECK(chat->tools.empty() || Json::parse(chat->tools).has_value(), "tools are JSON");
    } else {
        CHECK(!std::get<1>(job.prompt).empty(), "a job has a prompt");
    }
}

void check_refusal(const BadRecord& bad) {
    fuzz::check_message(bad.error.message);
    CHECK(!std::string_view(name_of(bad.error.code)).empty(), "each error has a code");
    Completion completion{.id = "r", .custom_id = bad.custom_id.value_or("x"), .run = {}, .body = {}, .failure = {}, .headers = {}};
    set_error(completion, bad.error);
    const auto read = parse_result(encode_completion(completion));
    CHECK(read && !read->ok && read->custom_id == completion.custom_id, "an error can be published and read");
}

// "the same" as far as both sides have it.
std::string told(const Expected<Job, BadRecord>& job) {
    if (!job) return job.error().custom_id.value_or("") + ": " + job.error().error.message;
    const auto* chat = std::get_if<ChatPrompt>(&job->prompt);
    return job->id + '\n' + job->model + '\n' + (chat == nullptr ? "" : chat->messages + chat->tools + chat->template_options);
}

// A dead letter's headers and the log say where a line is wrong, and quote nothing of it.
void check_quotes_nothing(std::string_view line) {
    constexpr std::string_view secret = "Zq7Jv3Kx";
    std::string with_secret(line);
    with_secret.insert(line.size() / 2, secret);
    const auto job = parse_job(record_of(with_secret, {}), {});
    if (job || job.error().custom_id) return;
    CHECK(job.error().error.message.find(secret) == std::string::npos, "an error of a line without a name quotes nothing of it");
}

void try_line(std::string_view line, std::array<std::string_view, 3> headers) {
    const auto job = parse_job(record_of(line, headers), {});
    if (job) {
        check_job(*job);
    } else {
        check_refusal(job.error());
    }
    check_quotes_nothing(line);
    const auto json = Json::parse(line);
    if (!json) {
        fuzz::check_message(json.error());
        return;
    }
    const std::string written = json->dump();
    const auto again = Json::parse(written);
    CHECK(again && again->dump() == written, "what was written reads back equal");
    CHECK(told(parse_job(record_of(written, headers), {})) == told(job), "the same job, written anew");
    const Json* id = json->is_object() ? json->find("custom_id") : nullptr;
    const auto scanned = scan_string_member(line, "custom_id");
    CHECK(scanned == (id != nullptr && id->is_string() ? std::optional(*id->as_string()) : std::nullopt),
          "both readers find the same name");
}

}  // namespace
}  // namespace lorry::schema

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto [line, batch, tenant, deadline] = lorry::fuzz::parts_of<4>(lorry::fuzz::text_of(data, size));
    lorry::schema::try_line(line, {batch, tenant, deadline});
    return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t size_max, unsigned seed) {
    return lorry::fuzz::mutate_json(data, size, size_max, seed);
}
