// Builds bodies and chunks in the shapes of OpenAI's API and vLLM's /classify.
#include "consumer/reply.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "consumer/reply_pooling.h"
#include "engine/text/detokenizer.h"
#include "schema/codec.h"

namespace lorry::consumer {
namespace {

using engine::Result;
using engine::TokenLogprobs;
using schema::Json;
using schema::TextShape;

std::int64_t seconds(schema::Timestamp time) { return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count(); }

// A token's text in JSON. Bytes that are not UTF-8 by themselves are escaped, as in OpenAI's API, so that different tokens stay different.
std::string printable(const std::string& bytes) {
    if (schema::is_valid_utf8(bytes)) return bytes;
    static constexpr char hex[] = "0123456789abcdef";
    std::string text = "bytes:";
    for (const char byte : bytes) {
        const auto value = static_cast<unsigned char>(byte);
        text += {'\\', 'x', hex[value >> 4], hex[value & 15]};
    }
    return text;
}

// JSON has no infinities: a token that cannot follow has a log-probability far below all others, as in vLLM.
double finite(float logprob) { return std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0; }

Json byte_list(const std::string& bytes) {
    Json::Array list;
    for (const char byte : bytes) list.emplace_back(static_cast<int>(static_cast<unsigned char>(byte)));
    return list;
}

Json chat_logprob(const engine::Tokenizer& tokenizer, engine::TokenId token, float logprob) {
    const std::string bytes = tokenizer.token_bytes(token);
    return Json::object({{"token", printable(bytes)}, {"logprob", finite(logprob)}, {"bytes", byte_list(bytes)}});
}

Json chat_logprobs(const engine::Tokenizer& tokenizer, std::span<const TokenLogprobs> entries) {
    Json::Array content;
    for (const TokenLogprobs& entry : entries) {
        Json one = chat_logprob(tokenizer, entry.token, entry.logprob);
        Json::Array top;
        for (const auto& alternative : entry.top) top.push_back(chat_logprob(tokenizer, alternative.token, alternative.logprob));
        one.set("top_logprobs", std::move(top));
        content.push_back(std::move(one));
    }
    return Json::object({{"content", std::move(content)}});
}

std::span<const kernels::TokenLogprob> first_of(std::span<const kernels::TokenLogprob> top, std::int64_t count) {
    return top.first(std::min(top.size(), static_cast<std::size_t>(count)));
}

// As vLLM: for each token of a prompt but the first an object that has the token itself and the likeliest `top` by their ids.
Json prompt_logprobs(const engine::Tokenizer& tokenizer, std::span<const TokenLogprobs> scores, std::int32_t top) {
    const auto entry = [&](engine::TokenId token, float logprob, std::int64_t rank) {
        return Json::Member(
            std::to_string(token),
            Json::object({{"logprob", finite(logprob)}, {"rank", rank}, {"decoded_token", tokenizer.decode(std::span(&token, 1), false)}}));
    };
    Json::Array list{Json()};
    for (const TokenLogprobs& score : scores) {
        Json::Object one{entry(score.token, score.logprob, score.rank)};
        std::int64_t rank = 0;
        for (const auto& [token, logprob] : first_of(score.top, top)) {
            ++rank;
            if (token != score.token) one.push_back(entry(token, logprob, rank));
        }
        list.emplace_back(std::move(one));
    }
    return list;
}

// The offsets at which the tokens of an echoed prompt begin in its text, in characters.
class PromptOffsets {
public:
    PromptOffsets(const engine::Tokenizer& tokenizer, std::string_view text)
        : tokenizer_(tokenizer), detokenizer_(tokenizer, true), left_(text), end_(schema::count_characters(text)) {}

    // Called for each token in order.
    std::int64_t next(engine::TokenId token) {
        const std::int64_t begin = std::min(characters_, end_);
        pass(detokenizer_.push(token));
        // Special tokens that are not spelled out in the prompt were added to it and have no text.
        if (tokenizer_.is_special(token)) {
            const std::string spelled = tokenizer_.token_bytes(token);
            if (left_.starts_with(spelled)) pass(spelled);
        }
        return begin;
    }

private:
    void pass(std::string_view text) {
        characters_ += schema::count_characters(text);
        left_.remove_prefix(std::min(text.size(), left_.size()));
    }

    const engine::Tokenizer& tokenizer_;
    engine::Detokenizer detokenizer_;
    std::string_view left_;
    const std::int64_t end_;
    std::int64_t characters_ = 0;
};

// The parallel lists of /v1/completions; text_offset counts characters of the returned text.
class TextLogprobs {
public:
    explicit TextLogprobs(const engine::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

    // An echoed prompt. Its first token has no predecessor, and thus no log-probability. top: how many alternatives are shown at most.
    void add_prompt(std::string_view text, engine::TokenId first, std::span<const TokenLogprobs> scores, std::int64_t top) {
        PromptOffsets offsets(tokenizer_, text);
        add(first, Json(), Json(), offsets.next(first));
        for (const TokenLogprobs& score : scores) add(score, first_of(score.top, top), offsets.next(score.token));
    }
    // echo: the prompt at the start of the returned text, or empty.
    void add_drawn(std::string_view echo, std::span<const TokenLogprobs> entries) {
        const std::int64_t begin = schema::count_characters(echo);
        for (const TokenLogprobs& entry : entries) add(entry, entry.top, begin + entry.text_begin);
    }
    Json take() {
        return Json::object({{"tokens", std::move(tokens_)},
                             {"token_logprobs", std::move(logprobs_)},
                             {"top_logprobs", std::move(top_)},
                             {"text_offset", std::move(offsets_)}});
    }

private:
    void add(const TokenLogprobs& entry, std::span<const kernels::TokenLogprob> alternatives, std::int64_t offset) {
        Json top = Json::Object();
        for (const auto& alternative : alternatives) {
            top.set(printable(tokenizer_.token_bytes(alternative.token)), finite(alternative.logprob));
        }
        add(entry.token, finite(entry.logprob), std::move(top), offset);
    }
    void add(engine::TokenId token, Json logprob, Json top, std::int64_t offset) {
        tokens_.emplace_back(printable(tokenizer_.token_bytes(token)));
        logprobs_.push_back(std::move(logprob));
        top_.push_back(std::move(top));
        offsets_.emplace_back(offset);
    }

    const engine::Tokenizer& tokenizer_;
    Json::Array tokens_;
    Json::Array logprobs_;
    Json::Array top_;
    Json::Array offsets_;
};

std::string shown_model(const ReplyContext& context, const std::string& model) { return model == "base" ? context.base_name : model; }

// A call as OpenAI's API has it. choice, call: where it stands in the result, for its id.
Json call_object(const AnswerPlan& plan, std::string_view body, std::int32_t choice, std::int64_t call, const FunctionCall& written) {
    return Json::object({{"id", call_id(*plan.calls, body, choice, static_cast<std::size_t>(call))},
                         {"type", "function"},
                         {"function", Json::object({{"name", written.name}, {"arguments", written.arguments}})}});
}

// An answer that has calls ends with them, unless it was cut off, or its job named the function.
const char* finish_of(engine::FinishReason reason, bool has_calls, bool names_call) {
    const bool ends_with_calls = reason == engine::FinishReason::stop && has_calls && !names_call;
    return ends_with_calls ? "tool_calls" : name_of(reason);
}

Json chat_choice(const ReplyContext& context, const ReplyPlan& plan, const Result& result, std::int32_t index) {
    AnswerReader reader(plan.answer);
    AnswerReader::Parts parts = reader.push(result.text);
    AnswerReader::Parts last = reader.finish(result.finish == engine::FinishReason::length);
    parts.reasoning += last.reasoning;
    parts.content += last.content;
    std::ranges::move(last.calls, std::back_inserter(parts.calls));
    const bool is_absent = parts.content.empty() && !(parts.reasoning.empty() && parts.calls.empty());
    Json message = Json::object({{"role", "assistant"}, {"content", is_absent ? Json() : Json(std::move(parts.content))}});
    if (!parts.reasoning.empty() && plan.job.include_reasoning) message.set("reasoning", std::move(parts.reasoning));
    if (!parts.calls.empty()) {
        const std::string body = body_id(plan.job.endpoint, plan.job.source, plan.job.custom_id);
        Json::Array calls;
        for (const FunctionCall& call : parts.calls) calls.push_back(call_object(plan.answer, body, index, std::ssize(calls), call));
        message.set("tool_calls", std::move(calls));
    }
    return Json::object(
        {{"index", index},
         {"message", std::move(message)},
         {"logprobs", plan.job.sampling.logprobs ? chat_logprobs(context.tokenizer_of(plan.text), result.logprobs) : Json()},
         {"finish_reason", finish_of(result.finish, !parts.calls.empty(), plan.job.tools.named)}});
}

// first: the result of the prompt's first sample, which carries the prompt's scores for all.
Json text_choice(const ReplyContext& context, const ReplyPlan& plan, const Result& first, const Result& result, const RequestPlace& place) {
    const EchoedPrompt echo = plan.job.echo ? plan.echo[static_cast<std::size_t>(place.prompt)] : EchoedPrompt{};
    Json logprobs;
    if (plan.job.sampling.logprobs) {
        TextLogprobs lists(context.tokenizer_of(plan.text));
        if (plan.job.echo) lists.add_prompt(echo.text, echo.first, first.scores, *plan.job.sampling.logprobs);
        lists.add_drawn(echo.text, result.logprobs);
        logprobs = lists.take();
    }
    Json choice = Json::object({{"index", place.prompt * plan.job.n + place.sample},
                                {"text", echo.text + result.text},
                                {"logprobs", std::move(logprobs)},
                                {"finish_reason", name_of(result.finish)}});
    if (const auto top = plan.job.prompt_logprobs)
        choice.set("prompt_logprobs", prompt_logprobs(context.tokenizer_of(plan.text), first.scores, *top));
    return choice;
}

// Summed log-probability of each choice of one prompt.
std::vector<double> choice_scores(const ReplyPlan& plan, std::span<const Result> results, std::int32_t prompt) {
    std::vector<double> scores(plan.choices.size(), 0.0);
    for (std::size_t i = 0; i < results.size(); ++i) {
        const RequestPlace& place = plan.places[i];
        if (place.prompt != prompt) continue;
        if (place.choice < 0) {
            for (std::size_t choice = 0; choice < scores.size(); ++choice) {
                scores[choice] += finite(results[i].final_targets[choice]);
            }
        } else {
            for (const TokenLogprobs& score : results[i].scores) {
                scores[static_cast<std::size_t>(place.choice)] += finite(score.logprob);
            }
        }
    }
    return scores;
}

Json classification(const ReplyPlan& plan, std::span<const Result> results, std::int32_t prompt) {
    const std::vector<double> scores = choice_scores(plan, results, prompt);
    const auto best = std::ranges::max_element(scores);
    double sum = 0.0;
    for (const double score : scores) sum += std::exp(score - *best);
    Json::Array probabilities;
    Json::Array logprobs;
    for (const double score : scores) {
        probabilities.emplace_back(std::exp(score - *best) / sum);
        logprobs.emplace_back(score);
    }
    return Json::object({{"index", prompt},
                         {"label", plan.job.choices[static_cast<std::size_t>(best - scores.begin())]},
                         {"probs", std::move(probabilities)},
                         {"num_classes", static_cast<std::int64_t>(scores.size())},
                         {"logprobs", std::move(logprobs)}});
}

bool is_chat(const schema::Job& job) {
    const auto generation = schema::row_of(job.endpoint).generation;
    return generation && generation->shape == TextShape::message;
}

schema::GenerationRow generation_of(const schema::EndpointRow& endpoint) {
    CHECK(endpoint.generation, "the codec takes no stream where nothing is drawn");
    return *endpoint.generation;
}

// The entries of jobs whose tokens are drawn or scored.
Json::Array text_entries(const ReplyContext& context, const ReplyPlan& plan, std::span<const Result> results) {
    const auto generation = schema::row_of(plan.job.endpoint).generation;
    Json::Array entries;
    for (std::size_t i = 0, first = 0; i < results.size(); ++i) {
        const RequestPlace& place = plan.places[i];
        if (!generation) {
            if (place.choice < 0) entries.push_back(classification(plan, results, place.prompt));
            continue;
        }
        if (place.sample == 0) first = i;
        switch (generation->shape) {
            case TextShape::message: entries.push_back(chat_choice(context, plan, results[i], place.sample)); break;
            case TextShape::text: entries.push_back(text_choice(context, plan, results[first], results[i], place)); break;
        }
    }
    return entries;
}

}  // namespace

schema::Usage usage_of(const ReplyPlan& plan, std::span<const Result> results) {
    schema::Usage usage{.prompt_tokens = plan.prompt_tokens};
    for (std::size_t i = 0; i < results.size(); ++i) {
        usage.completion_tokens += static_cast<std::int64_t>(results[i].tokens.size());
        if (results[i].thought_tokens) usage.reasoning_tokens = usage.reasoning_tokens.value_or(0) + *results[i].thought_tokens;
        const RequestPlace& place = plan.places[i];
        // Of a prompt that several requests share, the first counts.
        const bool counts = pooling_of(plan.work) || (place.sample == 0 && place.choice < 0);
        if (counts) usage.cached_tokens += results[i].cached_tokens;
    }
    return usage;
}

std::string body_id(schema::Endpoint endpoint, const schema::Source& source, const std::string& custom_id) {
    const std::string id = schema::result_id(source, custom_id);
    return std::string(schema::row_of(endpoint).id_prefix) + id.substr(id.rfind('_') + 1);
}

Reply make_reply(const ReplyContext& context, const ReplyPlan& plan, std::span<const Result> results, schema::Timestamp finished) {
    const schema::Job& job = plan.job;
    const schema::EndpointRow endpoint = schema::row_of(job.endpoint);
    CHECK(results.size() == plan.places.size(), "a reply is made of all of a job's results");
    Json::Array parts =
        pooling_of(plan.work) ? pooled_entries(context.tokenizer_of(plan.text), plan, results) : text_entries(context, plan, results);
    Reply reply{.body = Json(), .usage = usage_of(plan, results)};
    reply.body.set("id", body_id(job.endpoint, job.source, job.custom_id));
    reply.body.set("object", endpoint.object);
    reply.body.set("created", seconds(finished));
    reply.body.set("model", shown_model(context, job.model));
    if (!plan.model.hash.empty()) reply.body.set("adapter", plan.model.hash);
    reply.body.set("system_fingerprint", context.system_fingerprint);
    reply.body.set(std::string(endpoint.list_key), std::move(parts));
    reply.body.set("usage", schema::encode_usage(reply.usage));
    if (job.prompt_logprobs && is_chat(job)) {  // one prompt, so one list for all choices
        reply.body.set("prompt_logprobs", prompt_logprobs(context.tokenizer_of(plan.text), results.front().scores, *job.prompt_logprobs));
    }
    return reply;
}

std::int64_t reply_bytes_of(const ReplyPlan& plan, std::span<const Result> results) {
    if (pooling_of(plan.work)) return reply_choice_bytes + pooled_bytes_of(plan, results);
    const schema::Job& job = plan.job;
    // How many log-probabilities are shown, with at most so many alternatives for each token.
    const auto shown = [](std::span<const TokenLogprobs> entries, std::int64_t top) {
        std::int64_t count = 0;
        for (const TokenLogprobs& entry : entries) count += 1 + std::min(std::ssize(entry.top), top);
        return count;
    };
    const std::int64_t top = job.sampling.logprobs.value_or(0);
    const std::int64_t drawn_bytes = is_chat(job) ? reply_chat_logprob_bytes : reply_logprob_bytes;
    std::int64_t bytes = reply_choice_bytes;
    for (std::size_t i = 0, first = 0; i < results.size(); ++i) {
        const RequestPlace& place = plan.places[i];
        if (place.sample == 0) first = i;
        bytes += reply_choice_bytes + std::ssize(results[i].text) + shown(results[i].logprobs, top) * drawn_bytes;
        bytes += std::ssize(results[i].final_targets) * 2 * reply_logprob_bytes;  // probabilities as well
        const std::vector<TokenLogprobs>& scores = results[first].scores;
        if (job.echo) bytes += std::ssize(plan.echo[static_cast<std::size_t>(place.prompt)].text);
        if (job.echo && job.sampling.logprobs) bytes += shown(scores, top) * reply_logprob_bytes;
        const bool has_list = job.prompt_logprobs && (i == 0 || !is_chat(job));
        if (has_list) bytes += shown(scores, *job.prompt_logprobs) * reply_prompt_logprob_bytes;
    }
    return bytes;
}

schema::Completion completion_for(const schema::Job& job, schema::Run run) {
    return {.id = schema::result_id(job.source, job.custom_id), .custom_id = job.custom_id, .run = std::move(run), .headers = job.headers};
}

schema::Completion error_completion(const schema::Job& job, schema::Run run, const schema::JobError& error) {
    schema::Completion completion = completion_for(job, std::move(run));
    schema::set_error(completion, error);
    return completion;
}

StreamHead stream_head_of(const ReplyPlan& plan) {
    const schema::Job& job = plan.job;
    StreamHead head{.endpoint = job.endpoint,
                    .source = job.source,
                    .job_id = job.id,
                    .custom_id = job.custom_id,
                    .model = job.model,
                    .echo = {},
                    .echo_top = job.sampling.logprobs.value_or(0),
                    .samples = job.n,
                    .wants_usage = job.stream_usage,
                    .answer = plan.answer,
                    .text = plan.text,
                    .shows_reasoning = job.include_reasoning,
                    .names_call = job.tools.named};
    for (const EchoedPrompt& prompt : plan.echo) head.echo.push_back(prompt.text);
    return head;
}

ChunkWriter::ChunkWriter(const ReplyContext& context, StreamHead head, schema::Timestamp started, std::int64_t attempt)
    : context_(context),
      head_(std::move(head)),
      endpoint_(schema::row_of(head_.endpoint)),
      generation_(generation_of(endpoint_)),
      body_id_(body_id(head_.endpoint, head_.source, head_.custom_id)),
      started_(started),
      attempt_(attempt) {}

void ChunkWriter::open(std::int32_t choice, std::vector<schema::Chunk>& chunks) {
    const auto index = static_cast<std::size_t>(choice);
    if (opened_.size() <= index) opened_.resize(index + 1, false);
    if (opened_[index]) return;
    opened_[index] = true;
    switch (generation_.shape) {
        case TextShape::message: {
            Json role = Json::object({{"role", "assistant"}, {"content", ""}});
            chunks.push_back(wrap(choice_chunk(choice, {"delta", std::move(role)}, Json(), Json())));
            return;
        }
        case TextShape::text: {
            if (head_.echo.empty()) return;
            const std::size_t prompt = prompt_of(choice);
            Json logprobs;
            if (const auto scored = scored_.find(prompt); scored != scored_.end()) {
                TextLogprobs lists(context_.tokenizer_of(head_.text));
                lists.add_prompt(head_.echo[prompt], scored->second.first, scored->second.scores, head_.echo_top);
                logprobs = lists.take();
            }
            chunks.push_back(wrap(choice_chunk(choice, {"text", head_.echo[prompt]}, std::move(logprobs), Json())));
            return;
        }
    }
    CHECK(false, "each shape has its chunks");
}

ChunkWriter::Answer& ChunkWriter::answer_of(std::int32_t choice) {
    return answers_.try_emplace(choice, Answer{.reader = AnswerReader(head_.answer)}).first->second;
}

// A chunk for each part; the first has the log-probabilities.
void ChunkWriter::add_parts(std::int32_t choice, AnswerReader::Parts parts, Json logprobs, std::vector<schema::Chunk>& chunks) {
    const auto add = [&](Json delta) {
        chunks.push_back(wrap(choice_chunk(choice, {"delta", std::move(delta)}, std::exchange(logprobs, Json()), Json())));
    };
    if (!parts.reasoning.empty() && head_.shows_reasoning) add(Json::object({{"reasoning", std::move(parts.reasoning)}}));
    if (!parts.content.empty()) add(Json::object({{"content", std::move(parts.content)}}));
    Answer& answer = answer_of(choice);
    for (const FunctionCall& call : parts.calls) {
        Json written = Json::object({{"index", answer.calls}});
        const Json object = call_object(head_.answer, body_id_, choice, answer.calls, call);
        for (const auto& [name, value] : *object.as_object()) written.set(name, value);
        ++answer.calls;
        add(Json::object({{"tool_calls", Json::array({std::move(written)})}}));
    }
    if (!logprobs.is_null()) add(Json::object({{"content", ""}}));
}

std::vector<schema::Chunk> ChunkWriter::text(std::int32_t choice, const engine::Delta& delta) {
    std::vector<schema::Chunk> chunks;
    if (delta.prompt) scored_.emplace(prompt_of(choice), *delta.prompt);
    open(choice, chunks);
    if (delta.text.empty() && delta.logprobs.empty()) return chunks;
    switch (generation_.shape) {
        case TextShape::message:
            add_parts(choice, answer_of(choice).reader.push(delta.text), logprobs_of(choice, delta), chunks);
            return chunks;
        case TextShape::text:
            chunks.push_back(wrap(choice_chunk(choice, {"text", delta.text}, logprobs_of(choice, delta), Json())));
            return chunks;
    }
    CHECK(false, "each shape has its chunks");
}

std::vector<schema::Chunk> ChunkWriter::end(std::int32_t choice, engine::FinishReason reason) {
    std::vector<schema::Chunk> chunks;
    open(choice, chunks);
    switch (generation_.shape) {
        case TextShape::message: {
            add_parts(choice, answer_of(choice).reader.finish(reason == engine::FinishReason::length), Json(), chunks);
            const char* finish = finish_of(reason, answer_of(choice).calls > 0, head_.names_call);
            chunks.push_back(wrap(choice_chunk(choice, {"delta", Json(Json::Object())}, Json(), finish)));
            return chunks;
        }
        case TextShape::text: chunks.push_back(wrap(choice_chunk(choice, {"text", ""}, Json(), name_of(reason)))); return chunks;
    }
    CHECK(false, "each shape has its chunks");
}

std::vector<schema::Chunk> ChunkWriter::end_stream(const schema::Usage& usage) {
    if (!head_.wants_usage) return {};
    Json chunk = envelope();
    chunk.set(std::string(endpoint_.list_key), Json::Array());
    chunk.set("usage", schema::encode_usage(usage));
    return {wrap(std::move(chunk))};
}

schema::Chunk ChunkWriter::wrap(Json chunk) {
    return {.job_id = head_.job_id, .custom_id = head_.custom_id, .attempt = attempt_, .seq = seq_++, .chunk = std::move(chunk)};
}

Json ChunkWriter::logprobs_of(std::int32_t choice, const engine::Delta& delta) const {
    if (delta.logprobs.empty()) return {};
    switch (generation_.shape) {
        case TextShape::message: return chat_logprobs(context_.tokenizer_of(head_.text), delta.logprobs);
        case TextShape::text: {
            TextLogprobs lists(context_.tokenizer_of(head_.text));
            lists.add_drawn(head_.echo.empty() ? std::string_view() : head_.echo[prompt_of(choice)], delta.logprobs);
            return lists.take();
        }
    }
    CHECK(false, "each shape has its chunks");
}

Json ChunkWriter::choice_chunk(std::int32_t choice, Json::Member part, Json logprobs, Json finish_reason) const {
    Json one =
        Json::object({{"index", choice}, std::move(part), {"logprobs", std::move(logprobs)}, {"finish_reason", std::move(finish_reason)}});
    Json chunk = envelope();
    chunk.set(std::string(endpoint_.list_key), Json::array({std::move(one)}));
    return chunk;
}

Json ChunkWriter::envelope() const {
    return Json::object({{"id", body_id_},
                         {"object", generation_.chunk_object},
                         {"created", seconds(started_)},
                         {"model", shown_model(context_, head_.model)},
                         {"system_fingerprint", context_.system_fingerprint}});
}

}  // namespace lorry::consumer
