// `lorry offsets`: shows how far a consumer group is, including jobs finished out of order. `lorry offsets reset` sets the offsets anew.
// `lorry offsets skip` gives up records that cannot be read.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include <fmt/format.h>

#include "consumer/kafka/group_offsets.h"
#include "ops/client/offset_report.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/engine_setup.h"
#include "ops/kafka_settings.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

using consumer::GroupOffsets;
using consumer::NewOffset;
using consumer::PartitionOffsets;

std::string joined(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
    return text;
}

class OffsetsCommand final : public Command {
public:
    void declare(CLI::App& app) override {
        app.require_subcommand(0, 1);
        const auto add_calls = [this](CLI::App& to) { to.add_flag("--calls", calls_, "of the calls topic, not of the jobs topic"); };
        add_calls(app);
        app.add_flag("--json", json_, "a JSON object per partition, with all lists in full");
        configuration_.declare(app, {SettingScope::kafka});
        reset_ = app.add_subcommand("reset", "sets the group's offsets; only while it has no members");
        reset_
            ->add_option("--to", to_,
                         "committed: keep the offsets, but check again what is finished above; start or end of the log; an offset (with "
                         "--partition); or a time back from now such as 24h")
            ->type_name("WHERE")
            ->capture_default_str();
        reset_->add_option("--partition", partitions_, "only these (default: all)")->type_name("N");
        reset_->add_flag("--replay", replay_,
                         "run all jobs from there on again, for another result each; without it, jobs that have a result are skipped");
        reset_->add_flag("--dry-run", dry_run_, "shows what would be set, but sets nothing");
        add_calls(*reset_);
        configuration_.declare(*reset_, {SettingScope::kafka});  // the same object: a flag may be given before or after `reset`
        skip_ = app.add_subcommand("skip", "gives up the records that block a partition because they cannot be read");
        skip_->add_option("--partition", skipped_partition_, "the partition that they block")->type_name("N")->required();
        skip_->add_option("--offset", skipped_offset_, "only if the record at this offset is one of them")->type_name("OFFSET");
        skip_->add_flag("--dry-run", dry_run_, "shows what would be given up, but changes nothing");
        add_calls(*skip_);
        configuration_.declare(*skip_, {SettingScope::kafka});
    }

    ExitCode run() override {
        if (reset_->parsed()) return reset();
        return skip_->parsed() ? skip() : show();
    }

private:
    ExitCode show() const {
        const Settings settings = configuration_.load();
        const std::string group = group_of(settings);
        const GroupOffsets offsets(kafka_config_of(settings), group, topics_of(settings), GroupOffsets::View::now, input_of(settings));
        const auto members = offsets.members();
        const std::vector<PartitionOffsets> partitions = offsets.read();
        std::vector<PartitionReport> reports;
        for (const PartitionOffsets& partition : partitions) reports.push_back(report_of(partition));
        const bool unknown = std::ranges::none_of(partitions, [](const auto& one) { return one.committed || one.is_outdated; });
        if (unknown && members && members->names.empty()) {
            std::cerr << fmt::format(
                "lorry: group {} has no members and never committed anything for {}: `lorry worker` says its group "
                "when it starts; give it as --group\n",
                group, input_of(settings));
            return ExitCode::failed;
        }
        if (json_) {
            for (const PartitionReport& report : reports) std::cout << json_of(report).dump() << '\n';
        } else {
            std::cout << show_reports(reports);
        }
        if (members) {
            std::cerr << fmt::format("group {}, {}: {}\n", group, members->state,
                                     members->names.empty() ? "no members" : joined(members->names));
        }
        return ExitCode::done;
    }

    ExitCode reset() const {
        const Settings settings = configuration_.load();
        const std::string group = group_of(settings);
        const GroupOffsets offsets(kafka_config_of(settings), group, topics_of(settings), GroupOffsets::View::settled, input_of(settings));
        require_no_members(offsets, group);
        const std::vector<PartitionOffsets> before = offsets.read();
        const std::vector<NewOffset> wanted = wanted_offsets(offsets, before);
        std::vector<std::vector<std::string>> rows = {{"PARTITION", "COMMITTED", "NEW", "END", "REMARK"}};
        for (const NewOffset& place : wanted) {
            const PartitionOffsets& old = before[static_cast<std::size_t>(place.partition)];
            rows.push_back({std::to_string(place.partition), old.committed ? std::to_string(*old.committed) : "-",
                            std::to_string(place.offset), std::to_string(old.end), remark_on(old, place)});
        }
        if (!dry_run_) offsets.set(wanted);
        std::cout << show_table(rows, 0b1111);
        std::cerr << fmt::format("group {}: {}{}\n", group, dry_run_ ? "nothing was set; this is what would be. " : "set. ",
                                 replay_ ? "Workers will run all jobs from there on, including those that have a result"
                                         : "Workers will run the jobs from there on that have no result yet");
        return ExitCode::done;
    }

    ExitCode skip() const {
        const Settings settings = configuration_.load();
        const std::string group = group_of(settings);
        const schema::Topics topics = topics_of(settings);
        const GroupOffsets offsets(kafka_config_of(settings), group, topics, GroupOffsets::View::settled, input_of(settings));
        require_no_members(offsets, group);
        const std::vector<PartitionOffsets> all = offsets.read();
        require_partition(skipped_partition_, all);
        const PartitionOffsets& at = all[static_cast<std::size_t>(skipped_partition_)];
        const auto batch = offsets.blocking(at);
        if (!batch) {
            throw std::runtime_error(fmt::format(
                "partition {}: what the group reads next, from offset {} on, can be read; nothing was skipped. If a worker reports a "
                "record further on, let the workers finish the jobs below it first",
                at.partition, std::max(at.committed.value_or(at.first), at.first)));
        }
        if (skipped_offset_ && (*skipped_offset_ < batch->first || *skipped_offset_ >= batch->end)) {
            throw std::runtime_error(
                fmt::format("partition {}: --offset is {}, but the records that block it are at {}; nothing was skipped", at.partition,
                            *skipped_offset_, show_batch(*batch)));
        }
        if (!dry_run_) offsets.skip(at, *batch);
        std::cout << fmt::format("partition {}: {} {}\n", at.partition, dry_run_ ? "would skip" : "skipped", show_batch(*batch));
        std::cerr << fmt::format("reason: {}\n", batch->reason);
        if (!dry_run_) std::cerr << fmt::format("group {}: the jobs in them are dead letters in {}\n", group, topics.dlq());
        return ExitCode::done;
    }

    std::string input_of(const Settings& settings) const {
        const schema::Topics topics = topics_of(settings);
        return calls_ ? topics.calls() : topics.jobs();
    }

    static std::string show_batch(const consumer::UnreadableBatch& batch) {
        if (batch.end - batch.first == 1) return fmt::format("offset {}", batch.first);
        return fmt::format("offsets {} to {} ({}, one batch)", batch.first, batch.end - 1, show_count(batch.end - batch.first));
    }

    static void require_no_members(const GroupOffsets& offsets, const std::string& group) {
        const auto members = offsets.members();
        if (!members) throw UsageError("the embedded broker does not report a group's members: restart it instead");
        if (members->names.empty()) return;
        throw std::runtime_error(
            fmt::format("group {} has members: {}. Stop them; the group drops a stopped worker when its session times out, up to 20 s "
                        "later. Nothing was changed",
                        group, joined(members->names)));
    }

    static void require_partition(std::int32_t partition, const std::vector<PartitionOffsets>& all) {
        if (partition >= 0 && partition < std::ssize(all)) return;
        throw UsageError(fmt::format("--partition is {}; the topic has 0 to {}", partition, all.size() - 1));
    }

    // A commit without metadata makes the next owner of the partition read the results topic. A commit whose metadata says that nothing
    // above it is finished, and that the results so far are accounted for, makes it run everything.
    std::vector<NewOffset> wanted_offsets(const GroupOffsets& offsets, const std::vector<PartitionOffsets>& all) const {
        const auto offset = parse_integer(to_);
        const auto back = offset ? std::nullopt : parse_duration(to_);
        if (offset && partitions_.empty()) throw UsageError("--to with an offset needs --partition: offsets differ between partitions");
        if (!offset && !back && to_ != "committed" && to_ != "start" && to_ != "end") {
            throw UsageError(
                fmt::format("--to is '{}'; allowed are committed, start, end, an offset, or a time back from now such as 24h", to_));
        }
        for (const std::int32_t partition : partitions_) require_partition(partition, all);
        std::vector<std::int64_t> since;
        if (back) since = offsets.offsets_since(now() - *back);
        const std::vector<consumer::EndsSeen> ends = replay_ ? offsets.ends_seen() : std::vector<consumer::EndsSeen>();
        std::vector<NewOffset> wanted;
        for (const PartitionOffsets& old : all) {
            const bool named = std::find(partitions_.begin(), partitions_.end(), old.partition) != partitions_.end();
            if (!partitions_.empty() && !named) continue;
            std::int64_t place = std::clamp(old.committed.value_or(old.first), old.first, old.end);
            if (to_ == "start") place = old.first;
            if (to_ == "end") place = old.end;
            if (back) place = since[static_cast<std::size_t>(old.partition)];
            if (offset) {
                if (*offset < old.first || *offset > old.end) {
                    throw UsageError(fmt::format("--to is {}; partition {} holds {} to {}", *offset, old.partition, old.first, old.end));
                }
                place = *offset;
            }
            std::string metadata;
            if (replay_) {
                consumer::CommitState state = consumer::nothing_finished_above(place);
                state.seen = ends[static_cast<std::size_t>(old.partition)];
                state.topic = offsets.topic_mark();
                metadata = consumer::encode_commit_metadata(state);
            }
            wanted.push_back({.partition = old.partition, .offset = place, .metadata = std::move(metadata)});
        }
        return wanted;
    }

    static std::string remark_on(const PartitionOffsets& old, const NewOffset& place) {
        const std::int64_t before = std::max(old.committed.value_or(old.first), old.first);
        if (place.offset > before) return fmt::format("skips up to {} jobs: they get no result", show_count(place.offset - before));
        if (place.offset < before) return fmt::format("goes back by {}", show_count(before - place.offset));
        if (old.is_outdated) return "the commit is for an earlier topic of that name";
        return {};
    }

    CLI::App* reset_ = nullptr;
    CLI::App* skip_ = nullptr;
    std::string to_ = "committed";
    std::vector<std::int32_t> partitions_;
    std::int32_t skipped_partition_ = 0;
    std::optional<std::int64_t> skipped_offset_;
    bool replay_ = false;
    bool dry_run_ = false;
    bool json_ = false;
    bool calls_ = false;
    Configuration configuration_;
};

}  // namespace

std::unique_ptr<Command> make_offsets_command() { return std::make_unique<OffsetsCommand>(); }

}  // namespace lorry::ops
