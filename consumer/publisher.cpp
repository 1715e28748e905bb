// Turns publications into records for the sink.
#include "consumer/publisher.h"

#include <algorithm>

#include "consumer/batch_failure.h"
#include "consumer/reply_pooling.h"
#include "schema/codec.h"

namespace lorry::consumer {
namespace {

schema::Completion completion_of(const ReplyContext& context, const JobEnded& ended) {
    if (ended.error) return error_completion(ended.job.job(), ended.job.run, *ended.error);
    if (ended.failure) return failed_completion(ended.job.job(), ended.job.run, *ended.failure);
    schema::Completion completion = completion_for(ended.job.job(), ended.job.run);
    Reply reply = make_reply(context, ended.job.plan, ended.results, *ended.job.run.finished);
    completion.body = std::move(reply.body);
    completion.usage = reply.usage;
    return completion;
}

// Why a job's reply is not built; nullopt: it is.
std::optional<schema::JobError> error_of_answer(const ReplyContext& context, const JobEnded& ended) {
    if (ended.error || ended.failure) return std::nullopt;
    if (auto error = error_of_results(ended.job.plan, ended.results)) return error;
    const std::int64_t bytes = reply_bytes_of(ended.job.plan, ended.results);
    if (bytes <= context.reply_bytes_max) return std::nullopt;
    return schema::JobError{.code = schema::ErrorCode::result_too_large,
                            .param = {},
                            .message = "the result has about " + std::to_string(bytes) +
                                       " bytes, and this worker's result_bytes_max allows " + std::to_string(context.reply_bytes_max) +
                                       "; ask for fewer tokens, samples or log-probabilities, or raise the setting"};
}

ObservedError observed(const schema::JobError& error) { return {.code = error.code, .param = error.param, .message = error.message}; }

std::optional<ObservedError> observed_error(const JobEnded& ended, const schema::Completion& completion) {
    if (ended.error) return observed(*ended.error);
    if (!ended.failure) return std::nullopt;
    return ObservedError{.code = schema::code_of(*ended.failure), .param = {}, .message = completion.failure_message};
}

}  // namespace

Publisher::Publisher(CompletionSink& sink, const ReplyContext& reply, JobsInFlight& jobs_in_flight, Observer& observer)
    : sink_(sink), reply_(reply), jobs_in_flight_(jobs_in_flight), observer_(observer) {}

void Publisher::take(Publication publication) {
    std::visit([this](auto&& one) { publish(std::forward<decltype(one)>(one)); }, std::move(publication));
}

void Publisher::commit() {
    commit_by([&] { return sink_.commit(); }, [](const schema::Source&, Epoch) { return true; });
}

void Publisher::commit_calls() {
    const auto is_call = [&](const schema::Source& source, Epoch epoch) { return jobs_in_flight_.is_call(source, epoch); };
    commit_by([&] { return sink_.commit_calls(); }, is_call);
}

template <typename Commit, typename Includes>
void Publisher::commit_by(const Commit& commit, const Includes& includes) {
    const Clock::time_point begin = Clock::now();
    const std::size_t outcomes = commit();
    std::erase_if(uncommitted_, [&](const auto& one) {
        const auto& [source, epoch] = one;
        if (!includes(source, epoch)) return false;
        jobs_in_flight_.remove(source, epoch);
        return true;
    });
    calls_wait_ = false;
    if (outcomes > 0) observer_.on_committed(outcomes, std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin));
}

void Publisher::publish(StreamBegun begun) {
    const schema::Timestamp started{std::chrono::milliseconds(begun.attempt / 1000)};
    streams_.emplace(begun.key, Stream{.chunks = ChunkWriter(reply_, std::move(begun.head), started, begun.attempt), .epoch = begun.epoch});
}

void Publisher::publish(StreamDelta delta) {
    const auto stream = streams_.find(delta.key);
    CHECK(stream != streams_.end(), "a delta follows the begin of its stream");
    if (!is_ours(stream->second.chunks.source(), stream->second.epoch)) return;
    stream->second.tokens[delta.choice] = delta.delta.tokens;
    for (const schema::Chunk& chunk : stream->second.chunks.text(delta.choice, delta.delta)) sink_.publish(chunk);
}

void Publisher::publish(StreamAbandoned abandoned) { streams_.erase(abandoned.key); }

void Publisher::publish(StillRunning running) {
    if (is_ours(running.status.run.source, running.epoch)) sink_.publish(running.status);
}

void Publisher::publish(Refused refused) {
    const Outcome& outcome = refused.outcome;
    if (!is_ours(outcome.source, outcome.epoch)) return;
    if (const auto* letter = std::get_if<schema::DeadLetter>(&outcome.record)) {
        observer_.on_dead_letter(*letter);
    } else {
        const auto& completion = std::get<schema::Completion>(outcome.record);
        observer_.on_finished({.run = completion.run, .state = completion.state, .error = observed(refused.error), .usage = {}});
    }
    publish(std::move(refused.outcome));
}

void Publisher::publish(JobEnded ended) {
    const JobInWork& job = ended.job;
    if (!is_ours(job.source(), job.epoch)) {
        streams_.erase(job.key);
        return;
    }
    auto error = error_of_answer(reply_, ended);
    const bool is_withheld = error.has_value();
    if (is_withheld) ended.error = std::move(error);
    schema::Completion completion = completion_of(reply_, ended);
    // Computed, though it cannot be given.
    if (is_withheld) completion.usage = usage_of(job.plan, ended.results);
    // Its reader has the text, so that it counts.
    if (const std::int64_t sent = tokens_sent(job.key); ended.failure && sent > 0)
        completion.usage = {.prompt_tokens = job.plan.prompt_tokens, .completion_tokens = sent};
    completion.chunks = end_stream(ended, completion.usage);
    observe(ended, completion);
    publish(Outcome{.source = job.source(), .epoch = job.epoch, .record = std::move(completion)});
}

void Publisher::publish(Outcome outcome) {
    if (!is_ours(outcome.source, outcome.epoch)) return;
    uncommitted_.emplace_back(outcome.source, outcome.epoch);
    if (jobs_in_flight_.is_call(outcome.source, outcome.epoch)) calls_wait_ = true;
    sink_.publish(std::move(outcome));
}

// Publishes the last chunks. Returns how many the stream has had; nullopt: there is no stream.
std::optional<std::int64_t> Publisher::end_stream(const JobEnded& ended, const schema::Usage& usage) {
    const auto stream = streams_.find(ended.job.key);
    if (stream == streams_.end()) return std::nullopt;
    if (!ended.error && !ended.failure) {
        for (std::size_t i = 0; i < ended.results.size(); ++i) {
            for (const schema::Chunk& chunk : stream->second.chunks.end(static_cast<std::int32_t>(i), ended.results[i].finish))
                sink_.publish(chunk);
        }
        for (const schema::Chunk& chunk : stream->second.chunks.end_stream(usage)) sink_.publish(chunk);
    }
    const std::int64_t chunks = stream->second.chunks.written();
    streams_.erase(stream);
    return chunks;
}

std::int64_t Publisher::tokens_sent(JobKey job) const {
    const auto stream = streams_.find(job);
    std::int64_t tokens = 0;
    if (stream == streams_.end()) return tokens;
    for (const auto& [choice, of_choice] : stream->second.tokens) tokens += of_choice;
    return tokens;
}

void Publisher::observe(const JobEnded& ended, const schema::Completion& completion) {
    JobObservation seen{.run = completion.run,
                        .state = completion.state,
                        .error = observed_error(ended, completion),
                        .usage = completion.usage,
                        .cut = schema::was_cut(completion)};
    const auto since_delivery = [&](Clock::time_point time) {
        return time == Clock::time_point{} ? std::chrono::microseconds{}
                                           : std::chrono::duration_cast<std::chrono::microseconds>(time - ended.job.delivered);
    };
    if (!ended.results.empty()) {
        seen.queued = since_delivery(ended.results.front().started);
        seen.first_token = since_delivery(ended.results.front().first_token);
    }
    seen.total = since_delivery(ended.ended);
    for (const engine::Result& result : ended.results) {
        seen.longest_output = std::max(seen.longest_output, static_cast<std::int64_t>(result.tokens.size()));
    }
    observer_.on_finished(seen);
}

}  // namespace lorry::consumer
