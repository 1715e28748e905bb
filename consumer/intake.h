// The first stage: a delivery is admitted as a job or refused, its model is resolved, and it is parked, refused or prepared. The pipeline's
// intake thread and `lorry run --dry-run` call the same functions in the same order, so that a dry run reports what a run would do.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "consumer/handover.h"
#include "consumer/preparer.h"
#include "consumer/seams.h"
#include "engine/text/grammar_thread.h"
#include "schema/codec.h"

namespace lorry::consumer {

// A well-formed job that has not been prepared.
struct AdmittedJob {
    schema::Job job;
    Epoch epoch = 0;
    Clock::time_point delivered;
    std::int64_t bytes = 0;                            // of its record
    std::optional<JobWeight> weight;                   // once it was weighed
    engine::GrammarThread::Ordered grammar = nullptr;  // what it waits for; null: none is ordered
    std::string grammar_text;                          // ModelName::text_key() of the tokenizer that the grammar is for
};

// A job whose requests can be made once there is room for them.
struct WeighedJob {
    TokenizedJob tokenized;  // with what its record takes in its weight
    Epoch epoch = 0;
    Clock::time_point delivered;
    std::int64_t bytes = 0;

    // Drops its tokens, which take more memory than its text.
    AdmittedJob untokenized() &&;
};

struct IntakeOptions {
    std::string worker;  // its name, in results and statuses
    schema::ParseLimits parse;
    InFlightLimits limits;
};

// For each delivery: admit(), then refusal() or resolve(); then weigh(), and expand() once there is room. One thread.
class Intake {
public:
    // adapters and preparer outlive the intake.
    Intake(const AdapterDirectory& adapters, const Preparer& preparer, IntakeOptions options)
        : adapters_(adapters), preparer_(preparer), options_(std::move(options)) {}

    // The job in a delivery's record. An error that its source found comes before those of the codec.
    Expected<AdmittedJob, schema::BadRecord> admit(const Delivery& delivery, Clock::time_point delivered) const;
    // What is published for a delivery that was not admitted: an error under its custom_id, or a dead letter.
    Refused refusal(Delivery delivery, schema::BadRecord bad) const;
    // What is published for a job that ended while it waited.
    Refused ended(const AdmittedJob& admitted, schema::BatchFailure failure) const;

    // What the job's `model` means now.
    ModelName resolve(const AdmittedJob& admitted) const { return adapters_.resolve(admitted.job.model, admitted.delivered); }
    // The job's tokens and its weight, or why it cannot run. model: as resolved, not `not_yet`. grammar: as Preparer::tokenize.
    Expected<WeighedJob, Refused> weigh(AdmittedJob admitted, ModelName model,
                                        const engine::GrammarThread::Ordered& grammar = nullptr) const;
    // The job's requests.
    Submission expand(WeighedJob weighed, bool is_call);

private:
    schema::Run run_of(const schema::Job& job) const;
    schema::Run ended_run_of(const schema::Job& job) const;  // which ended as it began
    Refused refused(const schema::Job& job, Epoch epoch, schema::JobError error) const;
    std::optional<schema::JobError> error_of_weight(const JobWeight& weight) const;

    const AdapterDirectory& adapters_;
    const Preparer& preparer_;
    const IntakeOptions options_;
    JobKey next_key_ = 0;
};

}  // namespace lorry::consumer
