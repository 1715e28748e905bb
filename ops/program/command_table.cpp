// The subcommands: one row each.
#include <array>

#include "ops/command.h"

namespace lorry::ops {

std::unique_ptr<Command> make_worker_command();
std::unique_ptr<Command> make_run_command();
std::unique_ptr<Command> make_up_command();
std::unique_ptr<Command> make_serve_command();
std::unique_ptr<Command> make_check_model_command();
std::unique_ptr<Command> make_bench_command();
std::unique_ptr<Command> make_submit_command();
std::unique_ptr<Command> make_collect_command();
std::unique_ptr<Command> make_tail_command();
std::unique_ptr<Command> make_jobs_command();
std::unique_ptr<Command> make_usage_command();
std::unique_ptr<Command> make_cancel_command();
std::unique_ptr<Command> make_adapters_command();
std::unique_ptr<Command> make_keys_command();
std::unique_ptr<Command> make_topics_command();
std::unique_ptr<Command> make_offsets_command();
std::unique_ptr<Command> make_broker_command();
std::unique_ptr<Command> make_docs_command();

namespace {

constexpr std::array commands = {
    CommandRow{"worker", "run jobs from Kafka until SIGTERM",
               "  lorry worker --model models/base --adapters models/adapters --brokers kafka:9092", make_worker_command},
    CommandRow{"run", "run the jobs of a file, without Kafka",
               "  lorry run jobs.jsonl -o results.jsonl --model models/base --adapters models/adapters\n"
               "  lorry run mails.csv -o labelled.csv --model models/base --id mail_id --template prompt.txt --choices labels.txt\n"
               "  lorry run texts.csv.gz -o vectors.csv --model models/embedder --task embed --text body",
               make_run_command},
    CommandRow{"up", "serve the OpenAI API on this machine, for trying out",
               "  lorry up --model models/base --adapters models/adapters --port 8000", make_up_command},
    CommandRow{"serve", "serve the OpenAI API over HTTP, for workers that run the calls",
               "  lorry serve --base-name base --brokers kafka:9092 --listen 0.0.0.0:8000", make_serve_command},
    CommandRow{"check-model", "report on a model and its adapters: sizes, memory, problems",
               "  lorry check-model models/base --adapters models/adapters", make_check_model_command},
    CommandRow{"bench", "measure the engine on this machine",
               "  lorry bench machine\n"
               "  lorry bench queue --model models/base\n"
               "  lorry bench throughput --model models/base --requests 256 --input-tokens 64:256 --output-tokens 64\n"
               "  lorry bench throughput --random-weights smollm2-135m --random-adapters 8 --ranks 16\n"
               "  lorry bench loss --model models/base --jobs jobs.jsonl\n"
               "  lorry bench course --out course",
               make_bench_command},
    CommandRow{"submit", "send a file's jobs to Kafka as one batch",
               "  lorry submit jobs.jsonl --brokers kafka:9092                 prints the batch's id\n"
               "  lorry submit jobs.jsonl --brokers kafka:9092 --deadline 2h --wait",
               make_submit_command},
    CommandRow{"collect", "write a batch's results to a file until all are there",
               "  lorry collect --batch 20261121T101530Z-4f7a2c -o 20261121T101530Z-4f7a2c.jsonl --brokers kafka:9092",
               make_collect_command},
    CommandRow{"tail", "print the answers of streaming jobs as they are generated",
               "  lorry tail --job 20261121T101530Z-4f7a2c/mail-17 --brokers kafka:9092", make_tail_command},
    CommandRow{"jobs", "list jobs and how they ended, from a worker's ledger",
               "  lorry jobs --batch 20261121T101530Z-4f7a2c --state failed --ledger lorry.sqlite", make_jobs_command},
    CommandRow{"usage", "sum up what tenants and keys used, and what it costs, from a ledger",
               "  lorry usage --since 2026-11-01 --by tenant,model --prices prices.toml --ledger lorry.sqlite", make_usage_command},
    CommandRow{"cancel", "cancel a job or a batch", "  lorry cancel --batch 20261121T101530Z-4f7a2c --brokers kafka:9092",
               make_cancel_command},
    CommandRow{"adapters", "register, list and remove adapters",
               "  lorry adapters add section adapters/section --model models/base --adapters adapters --brokers kafka:9092\n"
               "  lorry adapters add --all adapters --model models/base --brokers kafka:9092\n"
               "  lorry adapters list --brokers kafka:9092",
               make_adapters_command},
    CommandRow{"keys", "make, list and revoke the keys of clients",
               "  lorry keys create --tenant search --name indexer --models section --brokers kafka:9092     prints the key, this once\n"
               "  lorry keys list --brokers kafka:9092\n"
               "  lorry keys revoke 4f7a2c81d03be956 --brokers kafka:9092",
               make_keys_command},
    CommandRow{"topics", "create the topics, print the ACLs that they need",
               "  lorry topics create --brokers kafka:9092 --partitions 24\n"
               "  lorry topics create --print-acls --group lorry-base",
               make_topics_command},
    CommandRow{"offsets", "show how far a consumer group is, reset its offsets, skip records",
               "  lorry offsets --group lorry-base --brokers kafka:9092\n"
               "  lorry offsets reset --to 24h --replay --group lorry-base --brokers kafka:9092\n"
               "  lorry offsets skip --partition 3 --group lorry-base --brokers kafka:9092",
               make_offsets_command},
    CommandRow{"broker", "start an embedded broker, for trying things out", "  lorry broker --port 9092", make_broker_command},
    CommandRow{"docs", "print a reference page: settings, metrics, error codes", "  lorry docs settings > docs/settings.md",
               make_docs_command},
};

}  // namespace

std::span<const CommandRow> command_table() { return commands; }

}  // namespace lorry::ops
