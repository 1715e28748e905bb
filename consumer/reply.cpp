// Bodies and chunks as the OpenAI API and vLLM's /classify shape them.
#include "consumer/reply.h"

#include <algorithm>
#include <cmath>

#include "engine/text/detokenizer.h"
#include "schema/codec.h"

namespace lorry::consumer {
namespace {

using engine::Result;
using engine::TokenLogprobs;
using schema::Endpoint;
using schema::Json;

std::int64_t seconds(schema::Timestamp time) { return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count(); }

// A token's text in JSON. Bytes that are no UTF-8 on their own are spelled out, as the OpenAI API does, so that they stay apart.
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

// Where the tokens of an echoed prompt begin in it, in characters.
class PromptOffsets {
public:
    PromptOffsets(const engine::Tokenizer& tokenizer, std::string_view text)
        : tokenizer_(tokenizer), detokenizer_(tokenizer, true), left_(text), end_(schema::count_characters(text)) {}

    // Called for each token in order.
    std::int64_t next(engine::TokenId token) {
        const std::int64_t begin = std::min(characters_, end_);
        pass(detokenizer_.push(token));
        // Special tokens that the prompt does not spell out were added to it and stand nowhere in its text.
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

    // An echoed prompt: its first token follows nothing and has no log-probability.
    void add_prompt(std::string_view text, engine::TokenId first, std::span<const TokenLogprobs> scores) {
        PromptOffsets offsets(tokenizer_, text);
        add(first, Json(), Json(), offsets.next(first));
        for (const TokenLogprobs& score : scores) add(score, offsets.next(score.token));
    }
    // echo: the prompt that the returned text begins with, or empty.
    void add_drawn(std::string_view echo, std::span<const TokenLogprobs> entries) {
        const std::int64_t begin = schema::count_characters(echo);
        for (const TokenLogprobs& entry : entries) add(entry, begin + entry.text_begin);
    }
    Json take() {
        return Json::object({{"tokens", std::move(tokens_)},
                             {"token_logprobs", std::move(logprobs_)},
                             {"top_logprobs", std::move(top_)},
                             {"text_offset", std::move(offsets_)}});
    }

private:
    void add(const TokenLogprobs& entry, std::int64_t offset) {
        Json top = Json::Object();
        for (const auto& alternative : entry.top) {
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

const char* id_prefix(Endpoint endpoint) {
    switch (endpoint) {
        case Endpoint::chat_completions: return "chatcmpl-";
        case Endpoint::completions: return "cmpl-";
        case Endpoint::classify: return "classify-";
    }
    CHECK(false, "every endpoint has a prefix");
}

std::string shown_model(const ReplyContext& context, const schema::Job& job) { return job.model == "base" ? context.base_name : job.model; }

Json chat_choice(const ReplyContext& context, const PreparedJob& prepared, const Result& result, std::int32_t index) {
    return Json::object({{"index", index},
                         {"message", Json::object({{"role", "assistant"}, {"content", result.text}})},
                         {"logprobs", prepared.job.sampling.logprobs ? chat_logprobs(context.tokenizer, result.logprobs) : Json()},
                         {"finish_reason", name_of(result.finish)}});
}

// first: the result of the prompt's first sample, which carries the prompt's scores for all.
Json text_choice(const ReplyContext& context, const PreparedJob& prepared, const engine::Request& first_request, const Result& first,
                 const Result& result, const engine::RequestId request, std::int32_t index) {
    const RequestPlace& place = prepared.places[request];
    const std::string echo = prepared.job.echo ? prepared.prompts[static_cast<std::size_t>(place.prompt)] : std::string();
    Json logprobs;
    if (prepared.job.sampling.logprobs) {
        TextLogprobs lists(context.tokenizer);
        if (prepared.job.echo) lists.add_prompt(echo, first_request.prompt.front(), first.scores);
        lists.add_drawn(echo, result.logprobs);
        logprobs = lists.take();
    }
    return Json::object(
        {{"index", index}, {"text", echo + result.text}, {"logprobs", std::move(logprobs)}, {"finish_reason", name_of(result.finish)}});
}

// Summed log-probability of each choice of one prompt.
std::vector<double> choice_scores(const PreparedJob& prepared, std::span<const Result> results, std::int32_t prompt) {
    std::vector<double> scores(prepared.choices.size(), 0.0);
    for (std::size_t i = 0; i < results.size(); ++i) {
        const RequestPlace& place = prepared.places[i];
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

Json classification(const PreparedJob& prepared, std::span<const Result> results, std::int32_t prompt) {
    const std::vector<double> scores = choice_scores(prepared, results, prompt);
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
                         {"label", prepared.job.choices[static_cast<std::size_t>(best - scores.begin())]},
                         {"probs", std::move(probabilities)},
                         {"num_classes", static_cast<std::int64_t>(scores.size())},
                         {"logprobs", std::move(logprobs)}});
}

schema::Usage usage_of(const PreparedJob& prepared, std::span<const Result> results) {
    schema::Usage usage{.prompt_tokens = prepared.prompt_tokens};
    for (std::size_t i = 0; i < results.size(); ++i) {
        usage.completion_tokens += static_cast<std::int64_t>(results[i].tokens.size());
        const RequestPlace& place = prepared.places[i];
        if (place.sample == 0 && place.choice < 0) usage.cached_tokens += results[i].cached_tokens;
    }
    return usage;
}

}  // namespace

std::string body_id(Endpoint endpoint, const schema::Source& source, const std::string& custom_id) {
    const std::string id = schema::result_id(source, custom_id);
    return id_prefix(endpoint) + id.substr(id.rfind('_') + 1);
}

Reply make_reply(const ReplyContext& context, const PreparedJob& prepared, std::span<const Result> results, schema::Timestamp finished) {
    const schema::Job& job = prepared.job;
    CHECK(results.size() == prepared.requests.size(), "a reply is made of all of a job's results");
    Json::Array parts;
    for (std::size_t i = 0, first = 0; i < results.size(); ++i) {
        const RequestPlace& place = prepared.places[i];
        if (place.sample == 0) first = i;
        if (job.endpoint == Endpoint::chat_completions) {
            parts.push_back(chat_choice(context, prepared, results[i], place.sample));
        } else if (job.endpoint == Endpoint::completions) {
            parts.push_back(text_choice(context, prepared, prepared.requests[first], results[first], results[i], i,
                                        place.prompt * job.n + place.sample));
        } else if (place.choice < 0) {
            parts.push_back(classification(prepared, results, place.prompt));
        }
    }
    Reply reply{.body = Json(), .usage = usage_of(prepared, results)};
    const bool classify = job.endpoint == Endpoint::classify;
    reply.body.set("id", body_id(job.endpoint, job.source, job.custom_id));
    reply.body.set("object", classify ? "list" : job.endpoint == Endpoint::completions ? "text_completion" : "chat.completion");
    reply.body.set("created", seconds(finished));
    reply.body.set("model", shown_model(context, job));
    if (!prepared.model.hash.empty()) reply.body.set("adapter", prepared.model.hash);
    reply.body.set("system_fingerprint", context.system_fingerprint);
    reply.body.set(classify ? "data" : "choices", std::move(parts));
    reply.body.set("usage", schema::encode_usage(reply.usage));
    return reply;
}

ChunkWriter::ChunkWriter(const ReplyContext& context, const schema::Job& job, std::vector<std::string> echo, schema::Timestamp started,
                         std::int64_t attempt)
    : context_(context),
      endpoint_(job.endpoint),
      model_(shown_model(context, job)),
      job_id_(job.id),
      custom_id_(job.custom_id),
      body_id_(body_id(job.endpoint, job.source, job.custom_id)),
      echo_(std::move(echo)),
      samples_(job.n),
      started_(started),
      attempt_(attempt),
      wants_usage_(job.stream_usage) {}

void ChunkWriter::open(std::int32_t choice, std::vector<schema::Chunk>& chunks) {
    const auto index = static_cast<std::size_t>(choice);
    if (opened_.size() <= index) opened_.resize(index + 1, false);
    if (opened_[index]) return;
    opened_[index] = true;
    if (endpoint_ == Endpoint::chat_completions) {
        chunks.push_back(wrap(choice_chunk(choice, Json::object({{"role", "assistant"}, {"content", ""}}), Json(), Json())));
    } else if (!echo_.empty()) {
        const std::size_t prompt = prompt_of(choice);
        Json logprobs;
        if (const auto scored = scored_.find(prompt); scored != scored_.end()) {
            TextLogprobs lists(context_.tokenizer);
            lists.add_prompt(echo_[prompt], scored->second.first, scored->second.scores);
            logprobs = lists.take();
        }
        chunks.push_back(wrap(choice_chunk(choice, echo_[prompt], std::move(logprobs), Json())));
    }
}

std::vector<schema::Chunk> ChunkWriter::text(std::int32_t choice, const engine::Delta& delta) {
    std::vector<schema::Chunk> chunks;
    if (delta.prompt) scored_.emplace(prompt_of(choice), *delta.prompt);
    open(choice, chunks);
    if (delta.text.empty() && delta.logprobs.empty()) return chunks;
    Json logprobs;
    if (!delta.logprobs.empty()) {
        if (endpoint_ == Endpoint::chat_completions) {
            logprobs = chat_logprobs(context_.tokenizer, delta.logprobs);
        } else {
            TextLogprobs lists(context_.tokenizer);
            lists.add_drawn(echo_.empty() ? std::string_view() : echo_[prompt_of(choice)], delta.logprobs);
            logprobs = lists.take();
        }
    }
    Json content = endpoint_ == Endpoint::chat_completions ? Json::object({{"content", delta.text}}) : Json(delta.text);
    chunks.push_back(wrap(choice_chunk(choice, std::move(content), std::move(logprobs), Json())));
    return chunks;
}

std::vector<schema::Chunk> ChunkWriter::end(std::int32_t choice, engine::FinishReason reason) {
    Json content = endpoint_ == Endpoint::chat_completions ? Json(Json::Object()) : Json("");
    std::vector<schema::Chunk> chunks;
    open(choice, chunks);
    chunks.push_back(wrap(choice_chunk(choice, std::move(content), Json(), name_of(reason))));
    return chunks;
}

std::vector<schema::Chunk> ChunkWriter::end_stream(const schema::Usage& usage) {
    if (!wants_usage_) return {};
    Json chunk = envelope();
    chunk.set("choices", Json::Array());
    chunk.set("usage", schema::encode_usage(usage));
    return {wrap(std::move(chunk))};
}

schema::Chunk ChunkWriter::wrap(Json chunk) {
    return {.job_id = job_id_, .custom_id = custom_id_, .attempt = attempt_, .seq = seq_++, .chunk = std::move(chunk)};
}

Json ChunkWriter::choice_chunk(std::int32_t choice, Json content, Json logprobs, Json finish_reason) const {
    Json chunk = envelope();
    const char* field = endpoint_ == Endpoint::chat_completions ? "delta" : "text";
    chunk.set("choices", Json::array({Json::object({{"index", choice},
                                                    {field, std::move(content)},
                                                    {"logprobs", std::move(logprobs)},
                                                    {"finish_reason", std::move(finish_reason)}})}));
    return chunk;
}

Json ChunkWriter::envelope() const {
    return Json::object({{"id", body_id_},
                         {"object", endpoint_ == Endpoint::chat_completions ? "chat.completion.chunk" : "text_completion"},
                         {"created", seconds(started_)},
                         {"model", model_},
                         {"system_fingerprint", context_.system_fingerprint}});
}

}  // namespace lorry::consumer
