// `lorry topics create`: creates the topics of one base model, or prints the ACLs that its users need.
#include <CLI/CLI.hpp>
#include <iostream>

#include <fmt/format.h>

#include "consumer/kafka/admin.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/kafka_settings.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

class TopicsCommand final : public Command {
public:
    void declare(CLI::App& app) override {
        app.require_subcommand(1);
        CLI::App* create = app.add_subcommand("create", "creates missing topics; does not change existing ones");
        create
            ->add_option("--partitions", settings_of_topics_.partitions,
                         "of jobs, calls, results, chunks and status; at least one per worker")
            ->type_name("N")
            ->check(CLI::Range(1, 10'000))
            ->capture_default_str();
        create->add_option("--replication", replication_, "copies of each record (default: 3 if there are three brokers, otherwise 1)")
            ->type_name("N")
            ->check(CLI::Range(1, 100));
        create->add_option("--retention", retention_, "how long jobs and results are kept")->type_name("TIME")->default_str("168h");
        create->add_flag("--print-acls", print_acls_, "prints the kafka-acls commands that give users their rights; creates nothing");
        create->add_option("--producer-user", principals_.producer, "with --print-acls: the user that submits and cancels jobs")
            ->capture_default_str();
        create->add_option("--worker-user", principals_.worker, "the user that runs them")->capture_default_str();
        create->add_option("--gateway-user", principals_.gateway, "the user that serves calls over HTTP")->capture_default_str();
        create->add_option("--reader-user", principals_.reader, "the user that collects results")->capture_default_str();
        create
            ->add_option("--administrator-user", principals_.administrator,
                         "the user that registers adapters, makes keys and resets offsets")
            ->capture_default_str();
        configuration_.declare(*create, {SettingScope::kafka});
    }

    ExitCode run() override {
        const Settings settings = configuration_.load();
        return print_acls_ ? print_acls(settings) : create(settings);
    }

private:
    ExitCode print_acls(const Settings& settings) {
        principals_.group = group_of(settings);
        if (!settings.brokers.empty()) principals_.bootstrap = settings.brokers;
        for (const std::string& line : schema::acl_lines(topics_of(settings), principals_)) std::cout << line << '\n';
        return ExitCode::done;
    }

    ExitCode create(const Settings& settings) {
        const consumer::KafkaConfig kafka = kafka_config_of(settings);
        if (!retention_.empty()) {
            const auto time = parse_duration(retention_);
            if (!time || *time < std::chrono::hours(1)) {
                throw UsageError(fmt::format("--retention is '{}'; allowed is a time from 1h, such as 168h", retention_));
            }
            settings_of_topics_.retention = std::chrono::ceil<std::chrono::hours>(*time);
        }
        const consumer::ClusterInfo cluster = consumer::describe_cluster(kafka);
        settings_of_topics_.brokers = cluster.brokers;
        std::vector<schema::TopicSpec> specs = schema::topic_specs(topics_of(settings), settings_of_topics_);
        if (replication_ > 0) {
            for (schema::TopicSpec& spec : specs) {
                spec.replication = replication_;
                // One copy may be unavailable without stopping the writers, if there are enough copies.
                spec.config["min.insync.replicas"] = std::to_string(std::max(1, replication_ - 1));
            }
        }
        std::vector<std::vector<std::string>> rows = {{"TOPIC", "", "PARTITIONS", "COPIES", "REMARK"}};
        const auto outcomes = consumer::create_topics(kafka, specs);
        for (std::size_t i = 0; i < outcomes.size(); ++i) {
            const bool created = outcomes[i].kind == consumer::TopicOutcome::Kind::created;
            std::string remark;
            for (const std::string& difference : outcomes[i].differences) remark += (remark.empty() ? "" : "; ") + difference;
            rows.push_back({outcomes[i].name, created ? "created" : "exists", created ? std::to_string(specs[i].partitions) : "",
                            created ? std::to_string(specs[i].replication) : "", remark});
        }
        std::cout << show_table(rows, 0b1100);
        const bool differs =
            std::any_of(outcomes.begin(), outcomes.end(), [](const auto& outcome) { return !outcome.differences.empty(); });
        if (differs) {
            std::cerr << "Existing topics were not changed. "
                      << (cluster.embedded
                              ? "The embedded broker creates its topics when it starts: give `lorry broker` other --partitions.\n"
                              : "To apply a remark, use kafka-configs or kafka-topics --alter.\n");
        }
        return ExitCode::done;
    }

    Configuration configuration_;
    schema::TopicSettings settings_of_topics_;
    schema::Principals principals_;
    int replication_ = 0;  // 0: not given
    std::string retention_;
    bool print_acls_ = false;
};

}  // namespace

std::unique_ptr<Command> make_topics_command() { return std::make_unique<TopicsCommand>(); }

}  // namespace lorry::ops
