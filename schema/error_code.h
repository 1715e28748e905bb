// The table of error codes: every way in which a job can end without an answer, one row each. Producers of errors name a code by its
// enumerator; codec_result.cpp writes the row's text into results, and the documentation lists the rows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "schema/check.h"

namespace lorry::schema {

enum class ErrorCode : std::uint8_t {
    // The record is not a job.
    null_value,
    unreadable_record,
    payload_too_large,
    job_too_large,
    invalid_json,
    invalid_custom_id,
    duplicate_custom_id,
    invalid_header,
    invalid_row,
    missing_column,
    // A field is wrong.
    missing_field,
    invalid_type,
    invalid_value,
    unsupported_field,
    invalid_structure,
    unsupported_url,
    // The model, or what the prompt means to it.
    model_not_found,
    adapter_refused,
    unsupported_by_model,
    no_chat_template,
    chat_template_failed,
    invalid_text,
    unknown_token,
    empty_prompt,
    empty_choice,
    context_length_exceeded,
    // The job was valid and failed.
    adapter_failed,
    non_finite_logits,
    worker_crashed,
    result_too_large,
    result_rejected,
    chunk_too_large,
    answer_changed,
    result_unreadable,
    // The job was ended before it had an answer.
    batch_expired,
    batch_cancelled,
    request_timeout,
};

struct ErrorRow {
    std::string_view name;           // the error's "code" in results, statuses and logs
    std::optional<int> status_code;  // HTTP's, of the result's response; nullopt: the result has no response, only an error
    std::string_view meaning;        // for people: what happened
    std::string_view remedy;         // for people: what to do

    // The error's "type", as in OpenAI's API. Empty without a response, where that API has no type.
    constexpr std::string_view type() const {
        if (!status_code) return {};
        return *status_code < 500 ? "invalid_request_error" : "server_error";
    }
};

// The table, as a function so that an enumerator without a row does not compile (-Wswitch). nullopt: not an enumerator.
constexpr std::optional<ErrorRow> find_error_row(ErrorCode code) {
    using enum ErrorCode;
    constexpr auto no_response = std::nullopt;
    switch (code) {
        case null_value: return ErrorRow{"null_value", 400, "The Kafka record has a null value.", "Send the job as the record's value."};
        case unreadable_record:
            return ErrorRow{"unreadable_record", 400,
                            "The Kafka record is damaged or has an unknown codec, and `lorry offsets skip` gave it up.",
                            "Send the job again."};
        case payload_too_large:
            return ErrorRow{"payload_too_large", 413, "The job has more bytes than `job_bytes_max` allows.",
                            "Send a smaller job, or raise the setting `job_bytes_max`."};
        case job_too_large:
            return ErrorRow{"job_too_large", 413, "The job asks for more tokens or memory than one job may take.",
                            "Ask for fewer sequences, tokens or log-probabilities, or raise `in_flight_tokens` or `in_flight_bytes`."};
        case invalid_json:
            return ErrorRow{"invalid_json", 400, "The job is not a JSON object.", "Send one JSON object in each record or line."};
        case invalid_custom_id:
            return ErrorRow{"invalid_custom_id", 400, "`custom_id` is missing, empty, not a string or longer than 512 bytes.",
                            "Give each job a `custom_id` of 1 to 512 bytes."};
        case duplicate_custom_id:
            return ErrorRow{"duplicate_custom_id", 400, "An earlier line of the file has the same `custom_id`.",
                            "Give each line a `custom_id` of its own."};
        case invalid_header:
            return ErrorRow{"invalid_header", 400, "The record's header `batch_id`, `tenant` or `deadline` cannot be read.",
                            "Correct the header that the message names."};
        case invalid_row:
            return ErrorRow{"invalid_row", 400, "A row of the table cannot be read, or has no id.",
                            "Correct the row: the message says what is wrong."};
        case missing_column:
            return ErrorRow{"missing_column", 400, "A row lacks a column that the template names.",
                            "Add the column to the table, or take it out of the template."};

        case missing_field:
            return ErrorRow{"missing_field", 400, "A required field is missing or null.", "Add the field that the message names."};
        case invalid_type:
            return ErrorRow{"invalid_type", 400, "A field's value has the wrong JSON type.", "Send the type that the message names."};
        case invalid_value:
            return ErrorRow{"invalid_value", 400, "A field's value is not allowed.", "Send a value that the message allows."};
        case unsupported_field:
            return ErrorRow{"unsupported_field", 400, "A field, or this value of it, is unknown or not supported.", "Leave the field out."};
        case invalid_structure:
            return ErrorRow{"invalid_structure", 400,
                            "What the answer must match (`response_format`, `structured_outputs`) has a mistake or a keyword that is not "
                            "supported, or is too complex. The message says which.",
                            "Correct or simplify it."};
        case unsupported_url:
            return ErrorRow{"unsupported_url", 400, "Lorry does not serve this `url`.", "Use one of the urls that the message lists."};

        case model_not_found:
            return ErrorRow{"model_not_found", 404, "`model` is neither the base model nor an adapter that the worker knows.",
                            "Check the name. Register the adapter with `lorry adapters add`; `lorry run` needs its folder in `adapters`."};
        case adapter_refused:
            return ErrorRow{"adapter_refused", 400, "The adapter exists and cannot be used with this base model.",
                            "The message and `lorry check-model` say why. Correct the adapter."};
        case unsupported_by_model:
            return ErrorRow{"unsupported_by_model", 400, "The model cannot do what the `url` asks, such as embeddings of a classifier.",
                            "Use a url that the message names, or another model."};
        case no_chat_template:
            return ErrorRow{"no_chat_template", 400, "The job is a chat and the model has no chat template.",
                            "Use `/v1/completions`, or a model with a chat template."};
        case chat_template_failed:
            return ErrorRow{"chat_template_failed", 400, "The model's chat template refused the messages, failed, or exceeded its limits.",
                            "The message names the reason. Change the messages or the template."};
        case invalid_text: return ErrorRow{"invalid_text", 400, "A text is not UTF-8, or cannot be tokenized.", "Send valid UTF-8."};
        case unknown_token:
            return ErrorRow{"unknown_token", 400, "A token id is not in the model's vocabulary.", "Send token ids that the model has."};
        case empty_prompt: return ErrorRow{"empty_prompt", 400, "The prompt has no tokens.", "Send a prompt that is not empty."};
        case empty_choice: return ErrorRow{"empty_choice", 400, "A choice has no tokens.", "Leave the choice out, or give it some text."};
        case context_length_exceeded:
            return ErrorRow{"context_length_exceeded", 400, "Prompt and requested tokens exceed the model's context or its KV cache.",
                            "Shorten the prompt or ask for fewer tokens; if the KV cache is the limit, raise `kv_memory`."};

        case adapter_failed:
            return ErrorRow{"adapter_failed", 500, "The adapter could not be loaded when the job was to run.",
                            "Repair the adapter (the message and `lorry adapters list` say what is wrong) and send the job again."};
        case non_finite_logits:
            return ErrorRow{"non_finite_logits", 500, "The model's output overflowed for this prompt.",
                            "Check the weights of the model and the adapter, or run the job with `dtype = \"float32\"`."};
        case worker_crashed:
            return ErrorRow{"worker_crashed", 500, "Workers died repeatedly while they ran this job, so it is not tried again.",
                            "Find out from the logs why the workers died. Send the job again if it was not the cause."};
        case result_too_large:
            return ErrorRow{"result_too_large", 500, "The result has more bytes than its topic or `result_bytes_max` allows.",
                            "Ask for fewer tokens, samples or log-probabilities, or raise the limit that the message names."};
        case result_rejected:
            return ErrorRow{"result_rejected", 500, "The broker refused the result's record.",
                            "Remove the cause that the message names, and send the job again."};
        case chunk_too_large:
            return ErrorRow{"chunk_too_large", 500, "The broker refused a chunk of the streamed answer.",
                            "Raise `max.message.bytes` of the chunks topic, or send the job without `stream`."};
        case answer_changed:
            return ErrorRow{"answer_changed", 500,
                            "The worker of a streamed call ended, another ran the call again, and its answer differs from what was sent.",
                            "Send the call again. Give all workers the same model, settings and kind of chip: then answers are equal."};
        case result_unreadable:
            return ErrorRow{"result_unreadable", 500, "The gateway cannot read the result that a worker wrote.",
                            "Give the gateway and the workers the same version of Lorry."};

        case batch_expired:
            return ErrorRow{"batch_expired", no_response, "The job's deadline passed before it was finished.",
                            "Send the job again with a later deadline."};
        case batch_cancelled:
            return ErrorRow{"batch_cancelled", no_response, "The job or its batch was cancelled.",
                            "Send the job again if it is still wanted."};
        case request_timeout:
            return ErrorRow{"request_timeout", no_response, "The job ran longer than `job_timeout`.",
                            "Ask for fewer tokens, or raise the setting `job_timeout`."};
    }
    return std::nullopt;
}

inline constexpr std::size_t error_code_count = [] {
    std::size_t count = 0;
    while (find_error_row(static_cast<ErrorCode>(count))) ++count;
    return count;
}();

// All codes, in the order of the enumerators.
inline constexpr auto error_codes = [] {
    std::array<ErrorCode, error_code_count> codes{};
    for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<ErrorCode>(i);
    return codes;
}();

constexpr ErrorRow row_of(ErrorCode code) {
    const auto row = find_error_row(code);
    CHECK(row, "each enumerator has a row");
    return *row;
}
constexpr std::string_view name_of(ErrorCode code) { return row_of(code).name; }

}  // namespace lorry::schema
