// lorry_kafka_bench measures what exactly-once delivery costs. Runs of each row alternate between the two delivery modes; each run has its
// own worker and its own topics. Run by hand against a broker; see --help.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <exception>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <thread>

#include <fmt/format.h>

#include "consumer/kafka/admin.h"
#include "consumer/kafka/client.h"
#include "consumer/kafka/reader.h"
#include "schema/json.h"
#include "schema/topics.h"
#include "tests/faults/arguments.h"
#include "tests/faults/bench.h"
#include "tests/faults/kafka_probe.h"
#include "tests/support/program.h"

namespace lorry::faults {
namespace {

using schema::Json;
using std::chrono::milliseconds;
using Timer = std::chrono::steady_clock;

constexpr std::string_view help =
    R"(usage: lorry_kafka_bench --brokers B [OPTION]...
  --rows TEXT          only rows whose name contains TEXT, such as 200ms-10p-small; may be repeated
  --jobs N             small jobs per run (30000); large jobs: a twentieth of it
  --rounds N           runs per row and delivery mode, in turns (3); the median counts
  --latency-seconds N  how long jobs arrive at a low rate to measure the latency that commits add (8); 0: do not measure it
  --in-flight N        jobs in flight of the worker (2048)
  --careful-starts N   careful starts of each partition (0, as when the last takeover is long past)
  --no-ledger          run the worker without a ledger
  --broker-pid PID     process of a broker on this machine, to report its processor time as well
  --json FILE          write the figures of each run to FILE
)";

constexpr std::int64_t answer_tokens = 8;
constexpr std::size_t small_token_bytes = 5;
constexpr std::size_t large_token_bytes = 12'500;  // 100 kB a result
constexpr std::uint64_t large_share = 20;
constexpr milliseconds latency_every{20};  // one job
// A job of the latency runs takes eight steps of this length, so that some jobs are always running: an idle worker commits at once.
constexpr std::chrono::microseconds latency_step{10'000};
constexpr std::chrono::seconds patience{300};

struct Row {
    milliseconds interval{200};
    int partitions = 10;
    bool large = false;
    std::string name() const { return fmt::format("{}ms-{}p-{}", interval.count(), partitions, large ? "100kB" : "small"); }
};

std::vector<Row> all_rows() {
    std::vector<Row> rows;
    for (const bool large : {false, true}) {
        for (const int partitions : {1, 10, 50}) {
            for (const int interval : {50, 200, 1'000}) {
                rows.push_back({.interval = milliseconds(interval), .partitions = partitions, .large = large});
            }
        }
    }
    return rows;
}

// The figures of all runs of one row in one delivery mode.
struct Figures {
    std::vector<double> jobs_per_second, cpu_per_thousand, broker_cpu_per_thousand, jobs_per_commit, commit_ms;
    std::vector<double> latency_ms;  // of each job
};

double at_share(std::vector<double> values, double share) {
    CHECK(!values.empty(), "a quantile needs at least one value");
    std::ranges::sort(values);
    return values[static_cast<std::size_t>(std::llround(share * static_cast<double>(values.size() - 1)))];
}

// User and system time of the process and all its threads, in seconds (proc(5), /proc/PID/stat, fields 14 and 15).
double cpu_seconds_of(const std::string& pid) {
    std::ifstream file("/proc/" + pid + "/stat");
    std::string line;
    if (!std::getline(file, line)) throw std::runtime_error("there is no process " + pid);
    std::istringstream fields(line.substr(line.rfind(')') + 1));  // the name may contain spaces
    std::string skipped;
    for (int field = 3; field < 14; ++field) fields >> skipped;
    double user = 0;
    double system = 0;
    fields >> user >> system;
    return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

class Bench {
public:
    explicit Bench(Arguments& arguments)
        : kafka_{.brokers = arguments.text("brokers"), .passthrough = {}},
          filters_(arguments.all("rows")),
          jobs_(static_cast<std::uint64_t>(arguments.number("jobs", 30'000))),
          rounds_(arguments.number("rounds", 3)),
          latency_jobs_(static_cast<std::uint64_t>(std::chrono::seconds(arguments.number("latency-seconds", 8)) / latency_every)),
          in_flight_(arguments.text("in-flight", "2048")),
          careful_starts_(arguments.text("careful-starts", "0")),
          keeps_ledger_(!arguments.has("no-ledger")),
          broker_pid_(arguments.text("broker-pid", "")),
          json_file_(arguments.text("json", "")),
          folder_(std::filesystem::temp_directory_path() / fmt::format("lorry_kafka_bench.{}", getpid())) {
        arguments.refuse_others();
    }

    void run() {
        std::cout << fmt::format("{:<16} {:<14} {:>9} {:>8} {:>13} {:>7} {:>12} {:>9} {:>14}\n", "row", "delivery", "jobs/s", "ratio",
                                 "CPU s/1k jobs", "broker", "jobs/commit", "commit ms", "added ms 50/99");
        for (const Row& row : all_rows()) {
            const auto is_in = [&](const std::string& filter) { return row.name().find(filter) != std::string::npos; };
            if (filters_.empty() || std::ranges::any_of(filters_, is_in)) run(row);
        }
        std::filesystem::remove_all(folder_);
        if (!json_file_.empty()) std::ofstream(json_file_) << Json(std::move(report_)).dump() << '\n';
    }

private:
    void run(const Row& row) {
        std::map<bool, Figures> figures;  // by exactly once
        for (std::int64_t round = 0; round < rounds_; ++round) {
            for (const bool exactly_once : {false, true}) measure_rate(row, exactly_once, figures[exactly_once]);
        }
        for (const bool exactly_once : {false, true}) {
            if (latency_jobs_ > 0) measure_latency(row, exactly_once, figures[exactly_once]);
        }
        std::vector<double> ratios;
        for (std::size_t i = 0; i < figures[true].jobs_per_second.size(); ++i) {
            ratios.push_back(figures[true].jobs_per_second[i] / figures[false].jobs_per_second[i]);
        }
        for (const bool exactly_once : {false, true}) {
            const std::string ratio = exactly_once ? fmt::format("{:.2f}", at_share(ratios, 0.5)) : "";
            tell(row, exactly_once ? "exactly once" : "at least once", ratio, figures[exactly_once]);
        }
    }

    void tell(const Row& row, const char* delivery, const std::string& ratio, const Figures& figures) {
        const std::string latency = figures.latency_ms.empty() ? "-"
                                                               : fmt::format("{:.0f}/{:.0f}", at_share(figures.latency_ms, 0.5),
                                                                             at_share(figures.latency_ms, 0.99));
        const std::string broker =
            figures.broker_cpu_per_thousand.empty() ? "-" : fmt::format("{:.3f}", at_share(figures.broker_cpu_per_thousand, 0.5));
        std::cout << fmt::format("{:<16} {:<14} {:>9.0f} {:>8} {:>13.3f} {:>7} {:>12.0f} {:>9.1f} {:>14}\n", row.name(), delivery,
                                 at_share(figures.jobs_per_second, 0.5), ratio, at_share(figures.cpu_per_thousand, 0.5), broker,
                                 at_share(figures.jobs_per_commit, 0.5), at_share(figures.commit_ms, 0.5), latency)
                  << std::flush;
        const auto list = [](const std::vector<double>& values) { return Json(Json::Array(values.begin(), values.end())); };
        report_.push_back(Json::object({{"row", row.name()},
                                        {"delivery", delivery},
                                        {"commit_interval_ms", static_cast<std::int64_t>(row.interval.count())},
                                        {"partitions", row.partitions},
                                        {"jobs_per_second", list(figures.jobs_per_second)},
                                        {"cpu_seconds_per_thousand", list(figures.cpu_per_thousand)},
                                        {"broker_cpu_seconds_per_thousand", list(figures.broker_cpu_per_thousand)},
                                        {"jobs_per_commit", list(figures.jobs_per_commit)},
                                        {"commit_ms", list(figures.commit_ms)},
                                        {"added_latency_ms", list(figures.latency_ms)}}));
    }

    // The topics of one run, deleted at its end.
    class RunTopics {
    public:
        RunTopics(const consumer::KafkaConfig& kafka, std::string prefix, int partitions) : kafka_(kafka), topics_{std::move(prefix)} {
            consumer::create_topics(kafka_, schema::topic_specs(topics_, {.partitions = partitions, .brokers = 1}));
        }
        ~RunTopics() {
            for (const schema::TopicSpec& spec : schema::topic_specs(topics_, {})) {
                const std::string& topic = spec.name;
                if (!delete_topic(kafka_, topic)) std::cerr << topic << " could not be deleted\n";
            }
        }
        RunTopics(const RunTopics&) = delete;
        RunTopics& operator=(const RunTopics&) = delete;
        const schema::Topics& names() const { return topics_; }

    private:
        const consumer::KafkaConfig& kafka_;
        const schema::Topics topics_;
    };

    std::string next_prefix() { return fmt::format("bench-{}-{}", getpid(), ++runs_); }

    void submit(consumer::JobProducer& producer, std::uint64_t number) const {
        const std::string line =
            fmt::format(R"({{"custom_id":"job-{}","method":"POST","url":"/v1/completions","body":{{"model":"base","prompt":)"
                        R"("Review {}: it came late but works. Is the customer happy? Answer:","max_tokens":{},"temperature":0}}}})",
                        number, number, answer_tokens);
        producer.submit(line, "base", number);
    }

    tests::Program start_worker(const Row& row, bool exactly_once, const std::string& prefix, std::uint64_t jobs,
                                std::chrono::microseconds step) const {
        std::filesystem::remove_all(folder_);
        std::filesystem::create_directories(folder_);
        std::vector<std::string> command = {"/proc/self/exe",   "--worker",
                                            "--brokers",        kafka_.brokers,
                                            "--prefix",         prefix,
                                            "--folder",         folder_.string(),
                                            "--interval-ms",    std::to_string(row.interval.count()),
                                            "--in-flight",      in_flight_,
                                            "--careful-starts", careful_starts_,
                                            "--token-bytes",    std::to_string(row.large ? large_token_bytes : small_token_bytes),
                                            "--step-us",        std::to_string(step.count()),
                                            "--jobs",           std::to_string(jobs)};
        if (!exactly_once) command.emplace_back("--at-least-once");
        if (!keeps_ledger_) command.emplace_back("--no-ledger");
        return tests::Program(std::move(command));
    }

    static std::string finish(tests::Program& worker) {
        const tests::ProgramResult result = worker.wait(patience);
        if (result.exit_code == 0) return result.out;
        throw std::runtime_error(fmt::format("a worker ended with {}: {}", result.exit_code,
                                             result.err.substr(result.err.size() - std::min<std::size_t>(result.err.size(), 2'000))));
    }

    void measure_rate(const Row& row, bool exactly_once, Figures& figures) {
        const RunTopics topics(kafka_, next_prefix(), row.partitions);
        const std::uint64_t jobs = row.large ? jobs_ / large_share : jobs_;
        {
            consumer::JobProducer producer(kafka_, {.topic = topics.names().jobs(), .spread = 1'000});
            for (std::uint64_t i = 0; i < jobs; ++i) submit(producer, i);
            producer.finish();
        }
        const double broker_cpu = broker_pid_.empty() ? 0 : cpu_seconds_of(broker_pid_);
        tests::Program worker = start_worker(row, exactly_once, topics.names().prefix, jobs, std::chrono::microseconds(0));
        const auto measured = Json::parse(finish(worker));
        if (!broker_pid_.empty()) {
            figures.broker_cpu_per_thousand.push_back((cpu_seconds_of(broker_pid_) - broker_cpu) * 1'000 / static_cast<double>(jobs));
        }
        CHECK(measured.has_value(), "a worker that exits with 0 has printed its measures");
        const auto at = [&](const char* name) { return measured->find(name)->as_number().value(); };
        figures.jobs_per_second.push_back(at("jobs") / at("seconds"));
        figures.cpu_per_thousand.push_back(at("cpu_seconds") * 1'000 / at("jobs"));
        figures.jobs_per_commit.push_back(at("jobs") / at("commits"));
        figures.commit_ms.push_back(at("commit_seconds") * 1'000 / at("commits"));
    }

    // The time from a job's end, which its status gives in whole milliseconds, until a reader of committed records has the result.
    void measure_latency(const Row& row, bool exactly_once, Figures& figures) {
        const RunTopics topics(kafka_, next_prefix(), row.partitions);
        tests::Program worker = start_worker(row, exactly_once, topics.names().prefix, 0, latency_step);
        consumer::RecordReader reader(kafka_, {.topics = {topics.names().results(), topics.names().status()}});
        std::jthread sender;
        std::map<std::string, schema::Timestamp> ended;
        std::map<std::string, std::chrono::system_clock::time_point> seen;
        std::uint64_t wanted = 1;  // the first job only shows that the worker runs
        {
            consumer::JobProducer producer(kafka_, {.topic = topics.names().jobs(), .spread = 1'000});
            submit(producer, 0);
            producer.finish();
        }
        const auto give_up = Timer::now() + patience;
        while (seen.size() < wanted || ended.size() < wanted) {
            if (Timer::now() > give_up) throw std::runtime_error("a result did not arrive in time");
            for (const schema::JobRecord& record : reader.poll(milliseconds(50), 100)) {
                const auto now = std::chrono::system_clock::now();
                if (record.source.topic == topics.names().results()) {
                    seen.emplace(record.key.value(), now);
                } else if (const auto status = schema::parse_status(record.value.value()); status && schema::is_terminal(status->state)) {
                    ended.emplace(status->run.job_id, status->run.finished.value());
                }
            }
            if (wanted > 1 || seen.empty()) continue;
            wanted += latency_jobs_;
            sender = std::jthread([this, &topics](const std::stop_token& stop) { send_slowly(topics.names().jobs(), stop); });
        }
        worker.signal(SIGTERM);
        finish(worker);
        for (const auto& [id, time] : seen) {
            if (id != "job-0") figures.latency_ms.push_back(std::chrono::duration<double, std::milli>(time - ended.at(id)).count());
        }
    }

    void send_slowly(const std::string& topic, const std::stop_token& stop) const {
        consumer::JobProducer producer(kafka_, {.topic = topic, .spread = 1'000});
        auto next = Timer::now();
        for (std::uint64_t i = 1; i <= latency_jobs_ && !stop.stop_requested(); ++i) {
            submit(producer, i);
            producer.poll();
            std::this_thread::sleep_until(next += latency_every);
        }
        producer.finish();
    }

    const consumer::KafkaConfig kafka_;
    const std::vector<std::string> filters_;
    const std::uint64_t jobs_;
    const std::int64_t rounds_;
    const std::uint64_t latency_jobs_;
    const std::string in_flight_;
    const std::string careful_starts_;
    const bool keeps_ledger_;
    const std::string broker_pid_;
    const std::string json_file_;
    const std::filesystem::path folder_;
    int runs_ = 0;
    Json::Array report_;
};

void work(Arguments& arguments) {
    const consumer::KafkaConfig kafka{.brokers = arguments.text("brokers"), .passthrough = {}};
    const BenchWork work{.prefix = arguments.text("prefix"),
                         .folder = arguments.text("folder"),
                         .exactly_once = !arguments.has("at-least-once"),
                         .keeps_ledger = !arguments.has("no-ledger"),
                         .commit_interval = arguments.milliseconds("interval-ms", 200),
                         .in_flight = static_cast<std::size_t>(arguments.number("in-flight", 2048)),
                         .careful_starts = static_cast<std::size_t>(arguments.number("careful-starts", 0)),
                         .token_bytes = static_cast<std::size_t>(arguments.number("token-bytes", 5)),
                         .step = std::chrono::microseconds(arguments.number("step-us", 0)),
                         .jobs = static_cast<std::uint64_t>(arguments.number("jobs", 0))};
    arguments.refuse_others();
    const BenchMeasures measures = run_bench_worker(kafka, work);
    std::cout << Json::object({{"jobs", measures.jobs},
                               {"commits", measures.commits},
                               {"seconds", measures.seconds},
                               {"cpu_seconds", measures.cpu_seconds},
                               {"commit_seconds", measures.commit_seconds}})
                     .dump()
              << '\n';
}

int run(std::span<char* const> given) {
    try {
        Arguments arguments(given);
        if (arguments.has("help")) {
            std::cout << help;
        } else if (arguments.has("worker")) {
            work(arguments);
        } else {
            Bench(arguments).run();
        }
        return 0;
    } catch (const UsageError& error) {
        std::cerr << error.what() << '\n' << help;
        return 2;
    } catch (const std::exception& error) {
        std::cerr << "failed: " << error.what() << '\n';
        return 1;
    }
}

}  // namespace
}  // namespace lorry::faults

int main(int count, char** arguments) { return lorry::faults::run({arguments, static_cast<std::size_t>(count)}); }
