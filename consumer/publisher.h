// The last stage: turns ends of jobs into completions and deltas into chunks, and commits at intervals. Used by pipeline.cpp's publishing
// thread only.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "consumer/handover.h"
#include "consumer/jobs_in_flight.h"
#include "consumer/observer.h"
#include "consumer/reply.h"
#include "consumer/seams.h"

namespace lorry::consumer {

class Publisher {
public:
    Publisher(CompletionSink& sink, const ReplyContext& reply, JobsInFlight& jobs_in_flight, Observer& observer);

    // Drops publications of jobs that are no longer in flight. The sink does the same with what it has taken.
    void take(Publication publication);
    // Commits what was taken since the last commit; those jobs are no longer in flight.
    void commit();
    // The same for calls, whose results do not wait for a commit of all.
    void commit_calls();
    std::size_t uncommitted() const { return uncommitted_.size(); }
    // Whether calls wait for a commit, of their results or of their starts.
    bool calls_wait() const { return calls_wait_; }

private:
    void publish(StreamBegun begun);
    void publish(StreamDelta delta);
    void publish(StreamAbandoned abandoned);
    void publish(StillRunning running);
    void publish(JobEnded ended);
    void publish(Refused refused);
    void publish(CallsHeldBack) { calls_wait_ = true; }
    void publish(Outcome outcome);
    bool is_ours(const schema::Source& source, Epoch epoch) const { return jobs_in_flight_.contains(source, epoch); }
    std::optional<std::int64_t> end_stream(const JobEnded& ended, const schema::Usage& usage);
    // Of the outputs of a stream, when its last chunk was sent; 0: nothing was.
    std::int64_t tokens_sent(JobKey job) const;
    void observe(const JobEnded& ended, const schema::Completion& completion);
    // commit: of the sink. includes: whether it makes the outcome of a job durable that was published before.
    template <typename Commit, typename Includes>
    void commit_by(const Commit& commit, const Includes& includes);

    CompletionSink& sink_;
    const ReplyContext& reply_;
    JobsInFlight& jobs_in_flight_;
    Observer& observer_;
    struct Stream {
        ChunkWriter chunks;
        Epoch epoch;
        std::map<std::int32_t, std::int64_t> tokens = {};  // by choice: of its output when the last chunk was sent
    };
    std::unordered_map<JobKey, Stream> streams_;
    std::vector<std::pair<schema::Source, Epoch>> uncommitted_;
    bool calls_wait_ = false;
};

}  // namespace lorry::consumer
