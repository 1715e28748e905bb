// A body's fields: one row of `fields` per name. A field is read, or accepted only with the value that Lorry uses anyway, or known to have
// no effect on the tokens, or refused by name; no field is ignored silently. A null is the same as leaving a known field out.
#include "schema/codec_body.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "schema/codec_pooling.h"
#include "schema/codec_prompt.h"
#include "schema/codec_structure.h"
#include "schema/codec_tools.h"
#include "schema/whole_number.h"

namespace lorry::schema {
namespace {

constexpr std::int64_t int32_max = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t model_bytes_max = 512;
constexpr WordLimits stop_limits{.words = 16, .bytes = 1024, .all_bytes = 16 * 1024, .single = true};
constexpr WordLimits bad_word_limits{.words = 1024, .bytes = 1024, .all_bytes = 16 * 1024};
constexpr std::size_t stop_ids_max = 1024;
constexpr std::int64_t fills_max = 100;
constexpr std::int64_t logprobs_max = 20;  // alternatives

// The job being read, and the fields whose meaning depends on other fields.
struct Draft {
    Draft(const Json& reading, Job& filling) : body(reading), job(filling) {}

    const Json& body;
    Job& job;
    std::optional<ReadMessages> messages;
    std::optional<std::vector<TextPrompt>> prompts;
    Tools tools;
    std::optional<ToolChoice> tool_choice;
    bool parallel_calls = true;
    Json template_options;  // an object or null
    std::optional<std::string> effort;
    bool add_generation_prompt = true;
    bool continues_last = false;
    std::optional<std::int32_t> max_tokens;
    std::optional<std::int32_t> max_completion_tokens;
    std::optional<std::int32_t> best_of;
    std::optional<std::int32_t> logprobs;      // completions
    bool wants_logprobs = false;               // chat
    std::optional<std::int32_t> top_logprobs;  // chat
    bool has_stream_options = false;
    std::optional<std::string> prompt_name;
    std::optional<std::string> input_type;
    std::optional<std::int64_t> truncation_tokens;
    bool truncates = false;
    std::optional<bool> keeps_end;
    std::optional<Structure> response_format;
    std::optional<Structure> structured_outputs;
};

// Sets of endpoints, as bits.
constexpr unsigned bit_of(Endpoint endpoint) { return 1U << static_cast<unsigned>(endpoint); }
template <typename Belongs>
constexpr unsigned endpoints_that(Belongs belongs) {
    unsigned bits = 0;
    for (const Endpoint endpoint : endpoints) bits |= belongs(row_of(endpoint)) ? bit_of(endpoint) : 0U;
    return bits;
}
constexpr unsigned chat = bit_of(Endpoint::chat_completions);
constexpr unsigned text = bit_of(Endpoint::completions);
constexpr unsigned classify = bit_of(Endpoint::classify);
constexpr unsigned embeddings = bit_of(Endpoint::embeddings);
constexpr unsigned token_classify = bit_of(Endpoint::token_classify);
constexpr unsigned score = bit_of(Endpoint::score);
constexpr unsigned rerank = bit_of(Endpoint::rerank);
constexpr unsigned fill_mask = bit_of(Endpoint::fill_mask);
constexpr unsigned truncate = classify | embeddings | token_classify | score | rerank;
constexpr unsigned generate = endpoints_that([](const EndpointRow& row) { return row.generation.has_value(); });
constexpr unsigned converse = endpoints_that([](const EndpointRow& row) { return row.takes_messages; });
constexpr unsigned all = endpoints_that([](const EndpointRow&) { return true; });

// How a row's field is read.
struct Number {
    double low;
    double high;
    void (*set)(Draft&, double);
    bool low_excluded = false;
};
struct Integer {
    std::int64_t low;
    std::int64_t high;
    void (*set)(Draft&, std::int64_t);
};
struct Flag {
    void (*set)(Draft&, bool);
};
struct Custom {
    FieldError (*read)(Draft&, const Json&);
};
// Accepted with this value only, which is what Lorry does anyway; nullptr: not supported with any value.
struct Fixed {
    const char* only;
    const char* instead = nullptr;  // the field that does what this one asks for
};
// The API defines it as having no effect on the tokens: labels for bookkeeping, hints for caches and billing.
struct NoEffect {
    const char* type;
};

struct Field {
    std::string_view name;
    unsigned endpoints;
    std::variant<Number, Integer, Flag, Custom, Fixed, NoEffect> kind;
};

FieldError read_model(Draft& draft, const Json& value) {
    const auto* name = value.as_string();
    if (name == nullptr) return wrong_type("model", "a string", value);
    if (name->empty() || name->size() > model_bytes_max) {
        return wrong_value("model", value, fmt::format("a name of 1 to {} bytes", model_bytes_max));
    }
    draft.job.model = *name;
    return {};
}

FieldError read_cache_salt(Draft& draft, const Json& value) {
    const auto* salt = value.as_string();
    if (salt == nullptr) return wrong_type("cache_salt", "a string", value);
    if (salt->empty()) return wrong_value("cache_salt", value, "a text of at least 1 byte");
    draft.job.cache_salt = *salt;
    return {};
}

template <typename Target, typename Read>
FieldError store(Target& target, Expected<Read, JobError> read) {
    if (!read) return std::move(read.error());
    target = std::move(*read);
    return {};
}

FieldError read_plain_texts(Draft& draft, std::string_view field, const Json& value) {
    auto texts = read_texts(field, value);
    if (!texts) return std::move(texts.error());
    draft.prompts.emplace(std::make_move_iterator(texts->begin()), std::make_move_iterator(texts->end()));
    return {};
}

FieldError read_query(Draft& draft, const Json& value) {
    auto query = read_text("query", value);
    if (!query) return std::move(query.error());
    draft.prompts.emplace().emplace_back(std::move(*query));
    return {};
}

FieldError read_truncation(Draft& draft, const Json& value) {
    draft.truncates = true;
    return store(draft.truncation_tokens, read_truncation_tokens(value));
}

FieldError read_effort(Draft& draft, const Json& value) {
    constexpr std::string_view efforts[] = {"none", "minimal", "low", "medium", "high", "xhigh"};
    const auto* effort = value.as_string();
    if (effort == nullptr) return wrong_type("reasoning_effort", "a string", value);
    if (std::ranges::find(efforts, *effort) == std::end(efforts)) {
        return wrong_value("reasoning_effort", value, fmt::format("{}", fmt::join(efforts, ", ")));
    }
    draft.effort = *effort;
    return {};
}

FieldError read_template_options(Draft& draft, const Json& value) {
    if (!value.is_object()) return wrong_type("chat_template_kwargs", "an object", value);
    for (const char* name : {"messages", "tools", "add_generation_prompt"}) {
        if (value.find(name) != nullptr) {
            return invalid("chat_template_kwargs",
                           fmt::format("field 'chat_template_kwargs' has '{0}'; give the field '{0}' instead", name));
        }
    }
    draft.template_options = value;
    return {};
}

FieldError read_stop_ids(Draft& draft, const Json& value) {
    const auto* list = value.as_array();
    if (list == nullptr) return wrong_type("stop_token_ids", "an array of token ids", value);
    if (list->size() > stop_ids_max) return wrong_value("stop_token_ids", value, fmt::format("a list of up to {} ids", stop_ids_max));
    for (std::size_t i = 0; i < list->size(); ++i) {
        auto id = read_token_id(fmt::format("stop_token_ids[{}]", i), (*list)[i]);
        if (!id) return std::move(id.error());
        draft.job.sampling.stop_token_ids.push_back(*id);
    }
    return {};
}

FieldError read_logit_bias(Draft& draft, const Json& value) {
    const auto* members = value.as_object();
    if (members == nullptr) return wrong_type("logit_bias", "an object from token id to number", value);
    for (const auto& [key, bias] : *members) {
        const auto id = parse_whole<std::int32_t>(key);
        // Only the canonical form, so that two keys never mean the same token.
        if (!id || *id < 0 || std::to_string(*id) != key) {
            return invalid("logit_bias", fmt::format("field 'logit_bias' has the key '{}'; allowed are token ids", shortened(key)));
        }
        const std::string place = "logit_bias." + key;
        if (!bias.is_number()) return wrong_type(place, "a number", bias);
        if (std::abs(*bias.as_number()) > 100) return wrong_value(place, bias, "-100 to 100");
        draft.job.sampling.logit_bias.emplace_back(*id, static_cast<float>(*bias.as_number()));
    }
    return {};
}

FieldError read_stream_options(Draft& draft, const Json& value) {
    const auto* members = value.as_object();
    if (members == nullptr) return wrong_type("stream_options", "an object", value);
    draft.has_stream_options = true;
    for (const auto& [key, option] : *members) {
        const std::string place = "stream_options." + key;
        if (key != "include_usage") return unsupported(place, fmt::format("field '{}' is not supported; leave it out", shortened(place)));
        if (!option.is_bool()) return wrong_type(place, "true or false", option);
        draft.job.stream_usage = *option.as_bool();
    }
    return {};
}

// clang-format off
constexpr Field fields[] = {
    {"model", all, Custom{read_model}},

    {"messages", converse, Custom{[](Draft& d, const Json& v) { return store(d.messages, read_messages(v)); }}},
    {"prompt", text, Custom{[](Draft& d, const Json& v) { return store(d.prompts, read_prompts("prompt", v)); }}},
    {"input", classify | embeddings, Custom{[](Draft& d, const Json& v) { return store(d.prompts, read_prompts("input", v)); }}},
    {"input", token_classify | fill_mask, Custom{[](Draft& d, const Json& v) { return read_plain_texts(d, "input", v); }}},
    {"choices", classify, Custom{[](Draft& d, const Json& v) { return store(d.job.choices, read_choices(v)); }}},
    {"text_1", score, Custom{[](Draft& d, const Json& v) { return read_plain_texts(d, "text_1", v); }}},
    {"text_2", score, Custom{[](Draft& d, const Json& v) { return store(d.job.pooling.second_texts, read_texts("text_2", v)); }}},
    {"query", rerank, Custom{read_query}},
    {"documents", rerank, Custom{[](Draft& d, const Json& v) { return store(d.job.pooling.second_texts, read_documents(v)); }}},
    {"tools", chat, Custom{[](Draft& d, const Json& v) { return store(d.tools, read_tools(v)); }}},
    {"tool_choice", chat, Custom{[](Draft& d, const Json& v) { return store(d.tool_choice, read_tool_choice(v)); }}},
    {"parallel_tool_calls", chat, Flag{[](Draft& d, bool v) { d.parallel_calls = v; }}},
    {"reasoning_effort", chat, Custom{read_effort}},
    {"continue_final_message", chat, Flag{[](Draft& d, bool v) { d.continues_last = v; }}},
    {"add_special_tokens", generate, Flag{[](Draft& d, bool v) { d.job.add_special_tokens = v; }}},
    {"chat_template_kwargs", converse, Custom{read_template_options}},
    {"add_generation_prompt", converse, Flag{[](Draft& d, bool v) { d.add_generation_prompt = v; }}},
    {"echo", text, Flag{[](Draft& d, bool v) { d.job.echo = v; }}},

    {"encoding_format", embeddings, Custom{[](Draft& d, const Json& v) { return store(d.job.pooling.base64, read_is_base64(v)); }}},
    {"dimensions", embeddings, Integer{1, int32_max, [](Draft& d, std::int64_t v) { d.job.pooling.dimensions = v; }}},
    {"normalize", embeddings, Flag{[](Draft& d, bool v) { d.job.pooling.normalize = v; }}},
    {"prompt_name", embeddings, Custom{[](Draft& d, const Json& v) { return store(d.prompt_name, read_text("prompt_name", v)); }}},
    {"input_type", embeddings, Custom{[](Draft& d, const Json& v) { return store(d.input_type, read_text("input_type", v)); }}},
    {"truncate_prompt_tokens", truncate | generate, Custom{read_truncation}},
    {"truncation_side", truncate, Custom{[](Draft& d, const Json& v) { return store(d.keeps_end, read_keeps_end(v)); }}},
    {"stride", classify | embeddings | token_classify, Integer{0, int32_max, [](Draft& d, std::int64_t v) { d.job.pooling.stride = v; }}},
    {"hypothesis_template", classify, Custom{[](Draft& d, const Json& v) {
        return store(d.job.pooling.hypothesis_template, read_hypothesis_template(v)); }}},
    {"multi_label", classify, Flag{[](Draft& d, bool v) { d.job.pooling.multi_label = v; }}},
    {"aggregation_strategy", token_classify, Custom{[](Draft& d, const Json& v) {
        return store(d.job.pooling.aggregation, read_aggregation(v)); }}},
    {"instruction", score | rerank, Custom{[](Draft& d, const Json& v) {
        return store(d.job.pooling.instruction, read_text("instruction", v)); }}},
    {"top_n", rerank, Integer{1, int32_max, [](Draft& d, std::int64_t v) { d.job.pooling.top_n = v; }}},
    {"return_documents", rerank, Flag{[](Draft& d, bool v) { d.job.pooling.return_documents = v; }}},
    {"top_k", fill_mask, Integer{1, fills_max, [](Draft& d, std::int64_t v) { d.job.pooling.top_k = static_cast<std::int32_t>(v); }}},

    {"temperature", generate, Number{0, 2, [](Draft& d, double v) { d.job.sampling.temperature = v; }}},
    {"top_p", generate, Number{0, 1, [](Draft& d, double v) { d.job.sampling.top_p = v; }, true}},
    {"top_k", generate, Integer{-1, int32_max, [](Draft& d, std::int64_t v) {
        d.job.sampling.top_k = static_cast<std::int32_t>(std::max(v, std::int64_t{0})); }}},
    {"min_p", generate, Number{0, 1, [](Draft& d, double v) { d.job.sampling.min_p = v; }}},
    {"presence_penalty", generate, Number{-2, 2, [](Draft& d, double v) { d.job.sampling.presence_penalty = v; }}},
    {"frequency_penalty", generate, Number{-2, 2, [](Draft& d, double v) { d.job.sampling.frequency_penalty = v; }}},
    {"repetition_penalty", generate, Number{0, 100, [](Draft& d, double v) { d.job.sampling.repetition_penalty = v; }, true}},
    {"logit_bias", generate, Custom{read_logit_bias}},
    {"seed", generate, Integer{std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max(),
        [](Draft& d, std::int64_t v) { d.job.sampling.seed = static_cast<std::uint64_t>(v); }}},
    {"n", generate, Integer{1, 128, [](Draft& d, std::int64_t v) { d.job.n = static_cast<std::int32_t>(v); }}},
    {"best_of", text, Integer{1, 128, [](Draft& d, std::int64_t v) { d.best_of = static_cast<std::int32_t>(v); }}},

    {"max_tokens", generate, Integer{0, int32_max, [](Draft& d, std::int64_t v) { d.max_tokens = static_cast<std::int32_t>(v); }}},
    {"max_completion_tokens", chat, Integer{1, int32_max, [](Draft& d, std::int64_t v) {
        d.max_completion_tokens = static_cast<std::int32_t>(v); }}},
    {"min_tokens", generate, Integer{0, int32_max, [](Draft& d, std::int64_t v) {
        d.job.sampling.min_tokens = static_cast<std::int32_t>(v); }}},
    {"stop", generate, Custom{[](Draft& d, const Json& v) {
        return store(d.job.sampling.stop, read_words("stop", v, stop_limits)); }}},
    {"stop_token_ids", generate, Custom{read_stop_ids}},
    {"bad_words", generate, Custom{[](Draft& d, const Json& v) {
        return store(d.job.sampling.bad_words, read_words("bad_words", v, bad_word_limits)); }}},
    {"allowed_token_ids", generate, Custom{[](Draft& d, const Json& v) {
        return store(d.job.sampling.allowed_token_ids, read_token_ids("allowed_token_ids", v)); }}},
    {"thinking_token_budget", chat, Integer{0, int32_max, [](Draft& d, std::int64_t v) {
        d.job.sampling.thinking_token_budget = v; }}},
    {"include_reasoning", chat, Flag{[](Draft& d, bool v) { d.job.include_reasoning = v; }}},
    {"ignore_eos", generate, Flag{[](Draft& d, bool v) { d.job.sampling.ignore_eos = v; }}},
    {"include_stop_str_in_output", generate, Flag{[](Draft& d, bool v) { d.job.sampling.include_stop_text = v; }}},
    {"skip_special_tokens", generate, Flag{[](Draft& d, bool v) { d.job.sampling.skip_special_tokens = v; }}},

    {"response_format", generate, Custom{[](Draft& d, const Json& v) { return store(d.response_format, read_response_format(v)); }}},
    {"structured_outputs", generate, Custom{[](Draft& d, const Json& v) {
        return store(d.structured_outputs, read_structured_outputs(v)); }}},

    {"logprobs", chat, Flag{[](Draft& d, bool v) { d.wants_logprobs = v; }}},
    {"top_logprobs", chat, Integer{0, logprobs_max, [](Draft& d, std::int64_t v) { d.top_logprobs = static_cast<std::int32_t>(v); }}},
    {"logprobs", text, Integer{0, logprobs_max, [](Draft& d, std::int64_t v) { d.logprobs = static_cast<std::int32_t>(v); }}},
    {"prompt_logprobs", generate, Integer{0, logprobs_max, [](Draft& d, std::int64_t v) {
        d.job.prompt_logprobs = static_cast<std::int32_t>(v); }}},
    {"stream", generate, Flag{[](Draft& d, bool v) { d.job.stream = v; }}},
    {"stream_options", generate, Custom{read_stream_options}},
    {"priority", all, Integer{-int32_max, int32_max, [](Draft& d, std::int64_t v) { d.job.priority = static_cast<std::int32_t>(v); }}},
    {"cache_salt", all, Custom{read_cache_salt}},

    {"user", all, NoEffect{"string"}},
    {"safety_identifier", generate, NoEffect{"string"}},
    {"metadata", all, NoEffect{"object"}},
    {"store", chat, NoEffect{"boolean"}},
    {"service_tier", chat, NoEffect{"string"}},
    {"prompt_cache_key", chat, NoEffect{"string"}},

    {"modalities", chat, Fixed{R"(["text"])"}},
    {"spaces_between_special_tokens", generate, Fixed{"true"}},
    {"use_beam_search", generate, Fixed{"false"}},
    {"return_token_ids", generate, Fixed{"false"}},
    {"return_tokens_as_token_ids", generate, Fixed{"false"}},
    {"suffix", text, Fixed{nullptr}},
    {"functions", chat, Fixed{nullptr}},
    {"function_call", chat, Fixed{nullptr}},
    {"audio", chat, Fixed{nullptr}},
    {"prediction", chat, Fixed{nullptr}},
    {"verbosity", chat, Fixed{nullptr}},
    {"web_search_options", chat, Fixed{nullptr}},
    {"guided_json", generate, Fixed{nullptr, "structured_outputs.json"}},
    {"guided_regex", generate, Fixed{nullptr, "structured_outputs.regex"}},
    {"guided_choice", generate, Fixed{nullptr, "structured_outputs.choice"}},
    {"guided_grammar", generate, Fixed{nullptr, "structured_outputs.grammar"}},
    {"structural_tag", generate, Fixed{nullptr, "structured_outputs.structural_tag"}},
    {"chat_template", converse, Fixed{nullptr}},
    {"documents", chat, Fixed{nullptr}},
    {"add_special_tokens", all & ~generate, Fixed{nullptr}},
    {"truncate_prompt_tokens", all & ~truncate & ~generate, Fixed{nullptr}},
    {"logits_processors", generate, Fixed{nullptr}},
    {"length_penalty", generate, Fixed{nullptr}},
};
// clang-format on

// A new endpoint does not compile until `fields` reads its prompt.
static_assert(std::ranges::all_of(endpoints, [](Endpoint endpoint) {
    return std::ranges::any_of(fields, [&](const Field& field) {
        return field.name == row_of(endpoint).prompt_field && (field.endpoints & bit_of(endpoint)) != 0;
    });
}));

// Reads one field's value by its row.
struct Reader {
    Draft& draft;
    const Field& field;
    const Json& value;

    FieldError operator()(const Number& row) const {
        const auto number = value.as_number();
        if (!number) return wrong_type(field.name, "a number", value);
        const bool low_enough = row.low_excluded ? *number <= row.low : *number < row.low;
        if (low_enough || *number > row.high) {
            return wrong_value(field.name, value, fmt::format("{}{} to {}", row.low_excluded ? "above " : "", row.low, row.high));
        }
        row.set(draft, *number);
        return {};
    }
    FieldError operator()(const Integer& row) const {
        if (!value.is_number()) return wrong_type(field.name, "an integer", value);
        const auto integer = value.as_integer();
        if (!integer || *integer < row.low || *integer > row.high) {
            return wrong_value(field.name, value, fmt::format("an integer from {} to {}", row.low, row.high));
        }
        row.set(draft, *integer);
        return {};
    }
    FieldError operator()(const Flag& row) const {
        if (!value.is_bool()) return wrong_type(field.name, "true or false", value);
        row.set(draft, *value.as_bool());
        return {};
    }
    FieldError operator()(const Custom& row) const { return row.read(draft, value); }
    FieldError operator()(const Fixed& row) const {
        if (row.instead != nullptr)
            return unsupported(field.name, fmt::format("field '{}' is not supported; give '{}' instead", field.name, row.instead));
        if (row.only == nullptr) return unsupported(field.name, fmt::format("field '{}' is not supported yet; leave it out", field.name));
        if (value.dump() == row.only) return {};
        return unsupported(field.name, fmt::format("field '{}' is {}; only {} is supported yet", field.name, shown(value), row.only));
    }
    FieldError operator()(const NoEffect& row) const {
        if (value.kind() == std::string_view(row.type)) return {};
        return wrong_type(field.name, fmt::format("a value of type {}", row.type), value);
    }
};

FieldError read_field(Draft& draft, const std::string& name, const Json& value) {
    std::string others;  // urls that take it
    for (const Field& field : fields) {
        if (field.name != name) continue;
        if ((field.endpoints & bit_of(draft.job.endpoint)) != 0)
            return value.is_null() ? std::nullopt : std::visit(Reader{draft, field, value}, field.kind);
        for (const Endpoint other : endpoints) {
            if ((field.endpoints & bit_of(other)) != 0) others += fmt::format("{}{}", others.empty() ? "" : ", ", row_of(other).url);
        }
    }
    const std::string_view url = row_of(draft.job.endpoint).url;
    if (others.empty()) return unsupported(name, fmt::format("field '{}' is unknown on {}; leave it out", shortened(name), url));
    return unsupported(name,
                       fmt::format("field '{}' is not supported on {}; leave it out, or use a url that takes it: {}", name, url, others));
}

std::optional<std::int32_t> max_tokens_default(Endpoint endpoint) {
    const auto generation = row_of(endpoint).generation;
    return generation ? generation->max_tokens_default : std::nullopt;
}

// Checks fields against each other and completes the job's sampling.
FieldError finish_sampling(Draft& draft) {
    Job& job = draft.job;
    if (draft.max_tokens && draft.max_completion_tokens && draft.max_tokens != draft.max_completion_tokens) {
        return invalid("max_tokens", fmt::format("field 'max_tokens' is {} and 'max_completion_tokens' {}; give one of them",
                                                 *draft.max_tokens, *draft.max_completion_tokens));
    }
    job.sampling.max_tokens = draft.max_completion_tokens ? draft.max_completion_tokens : draft.max_tokens;
    // Zero new tokens asks for the log-probabilities of the prompt itself.
    if (job.sampling.max_tokens == 0 && !job.echo && !job.prompt_logprobs) {
        return invalid("max_tokens",
                       fmt::format("field 'max_tokens' is 0; allowed is 1 or more, or 0 with 'prompt_logprobs' or, on {}, 'echo'",
                                   row_of(Endpoint::completions).url));
    }
    const std::int64_t most =
        job.sampling.max_tokens.value_or(max_tokens_default(job.endpoint).value_or(static_cast<std::int32_t>(int32_max)));
    if (job.sampling.min_tokens > most) {
        return invalid("min_tokens",
                       fmt::format("field 'min_tokens' is {}; allowed is 0 to max_tokens, {}", job.sampling.min_tokens, most));
    }
    if (draft.best_of && *draft.best_of != job.n) {
        return unsupported("best_of", fmt::format("field 'best_of' is {}; only the value of n, {}, is supported", *draft.best_of, job.n));
    }
    if (draft.top_logprobs.value_or(0) > 0 && !draft.wants_logprobs) {
        return invalid("top_logprobs", "field 'top_logprobs' needs 'logprobs': true; give both or none");
    }
    job.sampling.logprobs = draft.wants_logprobs ? std::optional(draft.top_logprobs.value_or(0)) : draft.logprobs;
    if (job.prompt_logprobs && job.stream) {
        return unsupported("prompt_logprobs", "field 'prompt_logprobs' is not supported with 'stream': true; leave one of them out");
    }
    if (draft.has_stream_options && !job.stream) {
        return invalid("stream_options", "field 'stream_options' needs 'stream': true; give both or none");
    }
    if (draft.response_format && draft.structured_outputs) {
        return invalid("structured_outputs", "fields 'response_format' and 'structured_outputs' are both present; give one of them");
    }
    job.structure = draft.response_format ? std::move(draft.response_format) : std::move(draft.structured_outputs);
    auto use = tool_use_of(std::move(draft.tools.functions), draft.tool_choice, draft.parallel_calls);
    if (!use) return std::move(use.error());
    job.tools = std::move(*use);
    if (job.structure && job.tools.choice != ToolUse::Choice::none) {
        return invalid(
            job.structure->field,
            fmt::format("fields '{}' and 'tools' are both present; give one of them, or 'tool_choice': \"none\"", job.structure->field));
    }
    return {};
}

FieldError error_of_stride(const Draft& draft) {
    const Job& job = draft.job;
    const auto refuse = [](std::string_view with) {
        return unsupported("stride", fmt::format("field 'stride' is not supported {}", with));
    };
    if (draft.messages) return refuse("with 'messages'; give 'input'");
    if (!job.choices.empty()) return refuse("with 'choices'; leave one of them out");
    if (job.pooling.truncation && job.pooling.truncation->keeps_end) return refuse("with 'truncation_side': \"left\": nothing is cut off");
    if (job.endpoint == Endpoint::token_classify && job.pooling.aggregation == Aggregation::none) {
        return refuse("with 'aggregation_strategy': \"none\": entities of windows that overlap are merged; choose another strategy");
    }
    return {};
}

// Checks fields against each other and completes what the job asks of an embedding or a class.
FieldError finish_pooling(Draft& draft) {
    Job& job = draft.job;
    if (draft.prompt_name && draft.input_type && draft.prompt_name != draft.input_type) {
        return invalid("input_type", "fields 'prompt_name' and 'input_type' differ; give one of them");
    }
    job.pooling.prompt_name = draft.prompt_name ? std::move(draft.prompt_name) : std::move(draft.input_type);
    if (draft.keeps_end && !draft.truncates) {
        return invalid("truncation_side", "field 'truncation_side' needs 'truncate_prompt_tokens'; give both or none");
    }
    if (draft.truncates && row_of(job.endpoint).generation) {
        job.prompt_truncation = {.tokens = draft.truncation_tokens, .keeps_end = true};
    } else if (draft.truncates)
        job.pooling.truncation = {.tokens = draft.truncation_tokens, .keeps_end = draft.keeps_end.value_or(false)};
    if (job.pooling.stride) {
        if (auto error = error_of_stride(draft)) return error;
    }
    if (!job.choices.empty()) return {};
    if (job.pooling.hypothesis_template) return invalid("hypothesis_template", "field 'hypothesis_template' needs 'choices'");
    if (job.pooling.multi_label) return invalid("multi_label", "field 'multi_label' needs 'choices'");
    return {};
}

// How many sequences a job of so many prompts asks for, and the field that multiplies them.
struct Sequences {
    std::string_view field;
    std::size_t count;
    std::string_view rule;
};
Expected<Sequences, JobError> sequences_of(const Draft& draft, std::size_t prompts) {
    const Job& job = draft.job;
    const std::string_view prompt_field = row_of(job.endpoint).prompt_field;
    switch (job.endpoint) {
        case Endpoint::chat_completions:
        case Endpoint::completions: return Sequences{"n", prompts * static_cast<std::size_t>(job.n), "prompts × n"};
        case Endpoint::classify:
            if (job.choices.empty()) return Sequences{prompt_field, prompts, "prompts"};
            return Sequences{"choices", prompts * job.choices.size(), "prompts × choices"};
        case Endpoint::embeddings:
        case Endpoint::token_classify:
        case Endpoint::fill_mask: return Sequences{prompt_field, prompts, "prompts"};
        case Endpoint::score:
        case Endpoint::rerank: {
            const std::string_view field = job.endpoint == Endpoint::score ? "text_2" : "documents";
            const std::size_t texts = job.pooling.second_texts.size();
            if (texts == 0) return unexpected(missing(field, draft.body.find(field), "give the texts to compare with"));
            if (prompts == 1 || prompts == texts) return Sequences{field, texts, "pairs"};
            return unexpected(
                invalid(field, fmt::format("field '{}' has {} texts and '{}' {}; give one {} for all, or as many as of the other", field,
                                           texts, prompt_field, prompts, prompt_field)));
        }
    }
    CHECK(false, "each endpoint has a number of sequences");
}

Expected<ChatPrompt, JobError> chat_of(Draft& draft) {
    if (draft.continues_last && draft.add_generation_prompt) {
        return unexpected(
            invalid("continue_final_message",
                    "field 'continue_final_message' needs 'add_generation_prompt': false: the answer goes on with a message"));
    }
    if (draft.effort) {
        const Json* effort = draft.template_options.find("reasoning_effort");
        if (effort != nullptr && effort->dump() != Json(*draft.effort).dump()) {
            return unexpected(invalid("reasoning_effort",
                                      "fields 'reasoning_effort' and 'chat_template_kwargs.reasoning_effort' differ; give one of them"));
        }
        draft.template_options.set("reasoning_effort", *draft.effort);
    }
    ChatPrompt prompt{.messages = std::move(draft.messages->json),
                      .tools = std::move(draft.tools.json),
                      .template_options = draft.template_options.is_null() ? std::string() : draft.template_options.dump(),
                      .add_generation_prompt = draft.add_generation_prompt};
    if (draft.continues_last) prompt.continued = std::move(draft.messages->last_text);
    return prompt;
}

FieldError finish_prompt(Draft& draft) {
    Job& job = draft.job;
    const EndpointRow row = row_of(job.endpoint);
    if (draft.messages && draft.prompts) {
        return invalid(row.prompt_field, fmt::format("fields '{}' and 'messages' are both present; give one of them", row.prompt_field));
    }
    if (!draft.messages && !draft.prompts) return missing(row.prompt_field, draft.body.find(row.prompt_field), row.prompt_advice);
    const auto sequences = sequences_of(draft, draft.prompts ? draft.prompts->size() : 1);
    if (!sequences) return sequences.error();
    if (sequences->count > job_sequences_max) {
        return invalid(sequences->field, fmt::format("the job asks for {} sequences ({}); allowed are up to {}: split it", sequences->count,
                                                     sequences->rule, job_sequences_max));
    }
    if (draft.messages) {
        auto prompt = chat_of(draft);
        if (!prompt) return std::move(prompt.error());
        job.prompt = std::move(*prompt);
    } else {
        job.prompt = std::move(*draft.prompts);
    }
    return {};
}

}  // namespace

FieldError read_body(const Json& body, Job& job) {
    const auto* members = body.as_object();
    if (members == nullptr) return wrong_type("body", "an object", body);
    Draft draft(body, job);
    const Json* model = body.find("model");
    if (model == nullptr || model->is_null()) return missing("model", model, "name an adapter or the base model");
    if (auto error = read_model(draft, *model)) return error;
    for (const auto& [name, value] : *members) {
        if (auto error = read_field(draft, name, value)) return error;
    }
    if (auto error = finish_sampling(draft)) return error;
    if (auto error = finish_pooling(draft)) return error;
    return finish_prompt(draft);
}

}  // namespace lorry::schema
