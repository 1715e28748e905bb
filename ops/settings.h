// All settings, one row each: the field with its type and default, its key in lorry.toml (the flag has '-' for '_'), and what it means.
// Configuration fills the fields from lorry.toml and the flags, commands read them, and `lorry docs settings` prints the rows.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "schema/check.h"

namespace lorry::ops {

struct Bytes {
    std::size_t count = 0;
};

// Which commands take a setting as a flag. Every command accepts all keys in lorry.toml.
enum class SettingScope : std::uint8_t { model, jobs, calls, gateway, kafka, ledger, usage, service, log };

class Settings;

// What a row says besides the field's type and default.
struct Setting {
    using Field = std::variant<std::string Settings::*, std::int64_t Settings::*, bool Settings::*, Bytes Settings::*,
                               std::optional<Bytes> Settings::*, std::chrono::milliseconds Settings::*>;
    const char* key;
    SettingScope scope;
    const char* value;           // the kind of value, in capitals: "DIR"; or the words that are allowed: "auto|cpu"
    std::int64_t minimum = 0;    // of an integer
    const char* otherwise = "";  // what applies where the setting is missing, if its default does not say so
    const char* help;            // a line for --help and docs/settings.md
    const char* more = "";       // further sentences for docs/settings.md
    Field field = {};            // Settings::row() fills it in
};

class Settings {
    std::vector<Setting>* rows_ = nullptr;  // where row() puts the rows; only setting_table() asks for them

public:
    Settings() = default;

    // The model and the device.
    std::string model = row(&Settings::model, "",
                            {.key = "model",
                             .scope = SettingScope::model,
                             .value = "DIR",
                             .help = "the folder of the base model, in Hugging Face's format",
                             .more = "`lorry check-model DIR` prints whether Lorry runs a model and how much memory it needs."});
    std::string base_name = row(&Settings::base_name, "",
                                {.key = "base_name",
                                 .scope = SettingScope::model,
                                 .value = "NAME",
                                 .otherwise = "the folder's name",
                                 .help = "the name by which jobs call the base model, besides 'base'"});
    std::string adapters = row(&Settings::adapters, "",
                               {.key = "adapters",
                                .scope = SettingScope::model,
                                .value = "DIR",
                                .help = "the folder of the adapters, one sub-folder in PEFT format for each",
                                .more = "`lorry run` serves each sub-folder under its own name. A worker serves the adapters that "
                                        "`lorry adapters add` registered; their registered paths are relative to this folder."});
    std::string device = row(&Settings::device, "auto",
                             {.key = "device",
                              .scope = SettingScope::model,
                              .value = "auto|cpu|cuda",
                              .help = "where the model runs; auto takes a GPU if there is one",
                              .more = "With `cuda` the program ends with exit code 2 and the reason if it cannot use a GPU."});
    std::string dtype = row(&Settings::dtype, "auto",
                            {.key = "dtype",
                             .scope = SettingScope::model,
                             .value = "auto|bfloat16|float32",
                             .help = "how weights, adapters and the KV cache are stored; auto is bfloat16",
                             .more = "Sums are computed in float32 in any case. `float32` keeps every bit of the checkpoint and takes "
                                     "twice the memory of `bfloat16`."});
    std::string quantize = row(&Settings::quantize, "none",
                               {.key = "quantize",
                                .scope = SettingScope::model,
                                .value = "none|int8|int4|fp8",
                                .help = "store matmul weights in a narrower format: int8 and int4 on the CPU, fp8 on a GPU",
                                .more = "Weights are converted while the model loads. `int8`: a scale per output; inputs of matmuls are "
                                        "rounded to int8 with a scale per row. `int4`: the same with weights of 4.5 bits; embeddings and "
                                        "head stay int8. `fp8`: as int8, with e4m3 numbers; embeddings and head stay as `dtype` says."});
    std::string kv_dtype = row(&Settings::kv_dtype, "auto",
                               {.key = "kv_dtype",
                                .scope = SettingScope::model,
                                .value = "auto|int8|fp8",
                                .help = "store the KV cache in a narrower format: int8 on the CPU, fp8 on a GPU; auto is as --dtype says",
                                .more = "Both keep a scale for each token of each head. Of the memory that bfloat16 takes, `int8` takes "
                                        "55 % in heads of 64, and `fp8` takes 52 % in heads of 128."});
    std::string pooling = row(&Settings::pooling, "auto",
                              {.key = "pooling",
                               .scope = SettingScope::model,
                               .value = "auto|cls|lasttoken|mean|mean_sqrt_len_tokens|max|weightedmean",
                               .help = "how an embedding model makes one vector of a text's tokens; auto is as the model's folder says",
                               .more = "A folder that sentence-transformers wrote says it (`modules.json`). Otherwise an encoder takes the "
                                       "`mean`, and a decoder makes embeddings only if this names a mode, mostly `lasttoken`."});
    std::string isa = row(&Settings::isa, "auto",
                          {.key = "isa",
                           .scope = SettingScope::model,
                           .value = "auto|avx512amx|avx512bf16|avx512|avx2|scalar",
                           .help = "the instruction set of the CPU kernels; auto chooses by CPU features and vendor",
                           .more = "The output at the start and `lorry bench machine` say which one is used and why; `lorry bench tune` "
                                   "compares them. Results of different instruction sets may differ in their last bits. Set it where "
                                   "workers on different chips have to give equal answers."});
    std::int64_t threads = row(&Settings::threads, 0,
                               {.key = "threads",
                                .scope = SettingScope::model,
                                .value = "N",
                                .help = "threads that compute; 0: the cores that this process may use, within its container's CPU quota"});
    std::optional<Bytes> kv_memory =
        row(&Settings::kv_memory, {},
            {.key = "kv_memory",
             .scope = SettingScope::model,
             .value = "SIZE",
             .otherwise = "what the batch can use, at most half of what is free, or what adapters leave of a GPU's memory",
             .help = "memory for the KV cache, such as 4GiB",
             .more = "What the batch can use is `max_batch` sequences of the model's full context. A job longer than the KV cache is "
                     "refused. Lorry does not start if that much memory is not free."});
    std::optional<Bytes> adapter_memory =
        row(&Settings::adapter_memory, {},
            {.key = "adapter_memory",
             .scope = SettingScope::model,
             .value = "SIZE",
             .otherwise = "an eighth of what is free, at most 2 GiB",
             .help = "memory for adapters that are loaded",
             .more = "When it is full, the least recently used adapter is evicted. On a GPU adapters also borrow what the KV cache "
                     "can spare."});
    std::optional<Bytes> graph_memory = row(&Settings::graph_memory, {},
                                            {.key = "graph_memory",
                                             .scope = SettingScope::model,
                                             .value = "SIZE",
                                             .otherwise = "a 32nd of what is free on the GPU, at most 512 MiB",
                                             .help = "memory for CUDA graphs of decoding steps; 0: no graphs",
                                             .more = "It has no effect on the CPU."});
    std::string matmul_table =
        row(&Settings::matmul_table, "",
            {.key = "matmul_table",
             .scope = SettingScope::model,
             .value = "FILE",
             .otherwise = "the program's own table",
             .help = "a file that says which of cuBLASLt's algorithms a GPU uses for which shape",
             .more = "`lorry bench tune --device cuda --table FILE` measures the algorithms and writes the file. It has no effect on the "
                     "CPU."});
    std::int64_t max_batch = row(&Settings::max_batch, 64,
                                 {.key = "max_batch",
                                  .scope = SettingScope::model,
                                  .value = "N",
                                  .minimum = 1,
                                  .help = "sequences that run at the same time",
                                  .more = "More sequences give more tokens per second but need more KV cache, and each is slower. "
                                          "A job with `n` samples or choices is several sequences."});
    std::int64_t step_tokens = row(&Settings::step_tokens, 0,
                                   {.key = "step_tokens",
                                    .scope = SettingScope::model,
                                    .value = "N",
                                    .help = "tokens computed in one step; longer prompts are cut into chunks; 0: 1,024 where matrix tiles "
                                            "(AMX) are in use, else 512",
                                    .more = "A smaller number lets running jobs go on more evenly while long prompts are read, but reads "
                                            "prompts more slowly. A step has room for `max_batch` tokens in any case."});
    bool prefix_cache = row(&Settings::prefix_cache, true,
                            {.key = "prefix_cache",
                             .scope = SettingScope::model,
                             .value = "true|false",
                             .help = "compute equal beginnings of prompts once",
                             .more = "Answers are the same with and without it."});
    bool share_prefixes = row(&Settings::share_prefixes, false,
                              {.key = "share_prefixes",
                               .scope = SettingScope::model,
                               .value = "true|false",
                               .help = "let jobs of different tenants share beginnings of prompts",
                               .more = "Shared prompts are then computed once for all tenants, but a tenant can learn from "
                                       "`cached_tokens`, and from the time a job takes, how other tenants' prompts begin. `cache_salt` "
                                       "of a job separates it in any case."});
    std::string speculation =
        row(&Settings::speculation, "auto",
            {.key = "speculation",
             .scope = SettingScope::model,
             .value = "auto|off|ngram",
             .help = "guess the next tokens and check several in one step; auto is ngram on the CPU and off on a GPU",
             .more = "`ngram`: a sequence is guessed to go on as it did where its last tokens occurred before, in the prompt or in the "
                     "answer. That makes answers that copy from their prompt or repeat themselves faster. Guesses are made only where, "
                     "by the times measured so far, they pay. Answers are the same with and without it."});
    std::string reasoning_parser = row(&Settings::reasoning_parser, "auto",
                                       {.key = "reasoning_parser",
                                        .scope = SettingScope::model,
                                        .value = "auto|none|think|mistral|seed_oss|granite|harmony",
                                        .help = "how the model marks its thoughts; auto reads it from the chat template",
                                        .more = "Thoughts become `reasoning` of a chat's message. `think` is `<think>…</think>`, as Qwen3, "
                                                "QwQ and DeepSeek-R1 write it. With `none` they stay in the text."});
    std::string tool_parser = row(&Settings::tool_parser, "auto",
                                  {.key = "tool_parser",
                                   .scope = SettingScope::model,
                                   .value = "auto|none|hermes|mistral_args|mistral|phi4_mini_json|pythonic|llama3_json|harmony",
                                   .help = "how the model writes tool calls; auto reads it from the chat template",
                                   .more = "Calls become `tool_calls` of a chat's message. With `none`, and where the template shows no "
                                           "format that Lorry knows, they stay in the text, and jobs cannot demand them."});

    // The jobs that are under way.
    std::int64_t in_flight = row(&Settings::in_flight, 2048,
                                 {.key = "in_flight",
                                  .scope = SettingScope::jobs,
                                  .value = "N",
                                  .minimum = 1,
                                  .help = "jobs that are read and not yet committed",
                                  .more = "When there are this many, reading pauses. It bounds memory, whatever the size of the backlog. "
                                          "Up to eight times as many more wait beside them for their adapter or for room, as text only."});
    std::int64_t in_flight_tokens =
        row(&Settings::in_flight_tokens, 0,
            {.key = "in_flight_tokens",
             .scope = SettingScope::jobs,
             .value = "N",
             .help = "prompt and output tokens that these jobs may come to hold; 0: two million, or four batches of the longest jobs",
             .more = "When there are this many, reading pauses. A job that needs more than half of them is refused with status 413."});
    Bytes in_flight_bytes =
        row(&Settings::in_flight_bytes, {std::size_t{1} << 30},
            {.key = "in_flight_bytes",
             .scope = SettingScope::jobs,
             .value = "SIZE",
             .help = "memory that these jobs may come to take: their text, tokens, samples and log-probabilities",
             .more = "It is estimated before a job runs. When it is used up, reading pauses. A job that needs more than half of it is "
                     "refused with status 413."});
    Bytes result_bytes_max = row(&Settings::result_bytes_max, {std::size_t{64} << 20},
                                 {.key = "result_bytes_max",
                                  .scope = SettingScope::jobs,
                                  .value = "SIZE",
                                  .help = "the size of the largest result; a larger one becomes the error result_too_large",
                                  .more = "In Kafka, the results topic's `max.message.bytes` usually allows less."});
    Bytes job_bytes_max = row(&Settings::job_bytes_max, {1 << 20},
                              {.key = "job_bytes_max",
                               .scope = SettingScope::jobs,
                               .value = "SIZE",
                               .help = "the size of the largest job; a larger one is refused with status 413"});
    std::chrono::milliseconds commit_interval =
        row(&Settings::commit_interval, std::chrono::milliseconds(200),
            {.key = "commit_interval",
             .scope = SettingScope::jobs,
             .value = "TIME",
             .help = "how often results are committed, such as 200ms",
             .more = "Results become visible with the commit. A commit costs the brokers work; with a longer interval there are fewer. "
                     "When nothing runs any more, or while jobs can start only after a commit, results are committed about every 20 ms."});
    std::chrono::milliseconds drain_timeout =
        row(&Settings::drain_timeout, std::chrono::milliseconds(20'000),
            {.key = "drain_timeout",
             .scope = SettingScope::jobs,
             .value = "TIME",
             .help = "how long running jobs may go on after SIGTERM or Ctrl-C",
             .more = "Jobs that have not ended by then run again elsewhere. In Kubernetes, set `terminationGracePeriodSeconds` to this "
                     "plus 50 s, because a worker whose brokers are away may wait 45 s for them."});
    std::chrono::milliseconds job_timeout = row(&Settings::job_timeout, std::chrono::milliseconds(3'600'000),
                                                {.key = "job_timeout",
                                                 .scope = SettingScope::jobs,
                                                 .value = "TIME",
                                                 .help = "a job that runs longer ends with the error request_timeout; 0: no limit",
                                                 .more = "The time counts from the job's first step, not from its arrival."});

    // Calls over HTTP.
    std::int64_t calls_max = row(&Settings::calls_max, 4096,
                                 {.key = "calls_max",
                                  .scope = SettingScope::calls,
                                  .value = "N",
                                  .minimum = 1,
                                  .help = "calls over HTTP that wait or run; one more is answered with status 429",
                                  .more = "Each takes a connection, and so a descriptor of the process."});
    std::chrono::milliseconds call_timeout =
        row(&Settings::call_timeout, std::chrono::milliseconds(600'000),
            {.key = "call_timeout",
             .scope = SettingScope::calls,
             .value = "TIME",
             .help = "how long a call over HTTP may wait and run; then it is cancelled and answered with status 504; 0: no limit",
             .more = "OpenAI's clients wait ten minutes as well."});

    // The gateway as a service.
    std::string listen = row(&Settings::listen, "127.0.0.1:8000",
                             {.key = "listen",
                              .scope = SettingScope::gateway,
                              .value = "HOST:PORT",
                              .help = "where `lorry serve` listens; port 0 takes any free one",
                              .more = "Without keys it has to be an address of this machine alone (127.0.0.1, [::1] or localhost)."});
    bool insecure_no_keys =
        row(&Settings::insecure_no_keys, false,
            {.key = "insecure_no_keys",
             .scope = SettingScope::gateway,
             .value = "true|false",
             .help = "serve whoever reaches the gateway, without keys",
             .more = "For development: `lorry serve` then listens on this machine alone. Otherwise callers need keys (`lorry keys`)."});
    bool share_adapters =
        row(&Settings::share_adapters, false,
            {.key = "share_adapters",
             .scope = SettingScope::gateway,
             .value = "true|false",
             .help = "let callers whose key or token names no models call all adapters, not the base model alone",
             .more = "An adapter was mostly trained on one tenant's data, and its answers, and the time of its first call, tell others "
                     "about it. Keys that name models, or all with `--models '*'`, need no setting. A proxy (`trusted_header`) never "
                     "names models."});

    std::string tls_cert = row(&Settings::tls_cert, "",
                               {.key = "tls_cert",
                                .scope = SettingScope::gateway,
                                .value = "FILE",
                                .help = "the certificate with which the gateway speaks HTTPS, in PEM format, with its chain",
                                .more = "Needs `tls_key`. Both files are read again when they change. Without them the gateway speaks "
                                        "HTTP."});
    std::string tls_key = row(&Settings::tls_key, "",
                              {.key = "tls_key",
                               .scope = SettingScope::gateway,
                               .value = "FILE",
                               .help = "the key of that certificate, in PEM format without a password",
                               .more = "A key that every user of the machine may read is refused."});
    std::string jwt_keys = row(&Settings::jwt_keys, "",
                               {.key = "jwt_keys",
                                .scope = SettingScope::gateway,
                                .value = "FILE",
                                .help = "the keys that sign JSON Web Tokens, as a JWKS; callers with such a token need no API key",
                                .more = "Needs `jwt_issuer` and `jwt_audience`. Algorithms are RS256, ES256 and HS256. The file is read "
                                        "again when it changes."});
    std::string jwt_issuer = row(&Settings::jwt_issuer, "",
                                 {.key = "jwt_issuer",
                                  .scope = SettingScope::gateway,
                                  .value = "TEXT",
                                  .help = "who issues the tokens: their claim `iss` must be this"});
    std::string jwt_audience = row(&Settings::jwt_audience, "",
                                   {.key = "jwt_audience",
                                    .scope = SettingScope::gateway,
                                    .value = "TEXT",
                                    .help = "for whom tokens are issued: their claim `aud` must be this, or a list with it"});
    std::string jwt_tenant_claim = row(
        &Settings::jwt_tenant_claim, "sub",
        {.key = "jwt_tenant_claim", .scope = SettingScope::gateway, .value = "NAME", .help = "the claim of a token that is its tenant"});
    std::string jwt_scope_claim = row(&Settings::jwt_scope_claim, "scope",
                                      {.key = "jwt_scope_claim",
                                       .scope = SettingScope::gateway,
                                       .value = "NAME",
                                       .help = "the claim of a token that says what its caller may do",
                                       .more = "Its words are those that begin with `lorry:`; docs/serve.md lists them."});
    std::string trusted_header = row(&Settings::trusted_header, "",
                                     {.key = "trusted_header",
                                      .scope = SettingScope::gateway,
                                      .value = "NAME",
                                      .help = "the header field in which a reverse proxy names the caller, who is the tenant",
                                      .more = "Needs `trusted_proxies`. From all other addresses the field is ignored."});
    std::string trusted_proxies = row(&Settings::trusted_proxies, "",
                                      {.key = "trusted_proxies",
                                       .scope = SettingScope::gateway,
                                       .value = "ADDRESSES",
                                       .help = "the addresses of those proxies, such as 10.0.0.0/8,::1"});
    std::int64_t gateways =
        row(&Settings::gateways, 0,
            {.key = "gateways",
             .scope = SettingScope::gateway,
             .value = "N",
             .minimum = 0,
             .help = "how many gateways run side by side: each grants a key this fraction of its limits; 0: they count each "
                     "other"});

    std::string files = row(&Settings::files, "",
                            {.key = "files",
                             .scope = SettingScope::gateway,
                             .value = "DIR",
                             .otherwise = "neither files nor batches are served",
                             .help = "the folder of uploaded files and of batches' results; all gateways share it"});
    Bytes file_bytes_max = row(&Settings::file_bytes_max, {std::size_t{200} << 20},
                               {.key = "file_bytes_max",
                                .scope = SettingScope::gateway,
                                .value = "SIZE",
                                .help = "the size of the largest file; a larger one is refused with status 413"});
    std::int64_t batch_ahead = row(&Settings::batch_ahead, 2'000,
                                   {.key = "batch_ahead",
                                    .scope = SettingScope::gateway,
                                    .value = "N",
                                    .minimum = 1,
                                    .help = "how many jobs of a tenant's batches a gateway keeps in Kafka at a time",
                                    .more = "Those that have no result yet, of all batches of the tenant that this gateway carries out. "
                                            "Fewer let other tenants' jobs run sooner; more keep more workers busy."});

    // Kafka.
    std::string brokers = row(&Settings::brokers, "",
                              {.key = "brokers",
                               .scope = SettingScope::kafka,
                               .value = "HOST:PORT,…",
                               .help = "the Kafka brokers to start from",
                               .more = "One that answers is enough; it names the others. `lorry broker` starts an embedded one, for "
                                       "trying things out."});
    std::string prefix = row(&Settings::prefix, "lorry",
                             {.key = "prefix",
                              .scope = SettingScope::kafka,
                              .value = "NAME",
                              .help = "the prefix of the topics, as in NAME.jobs and NAME.results"});
    std::string group = row(&Settings::group, "",
                            {.key = "group",
                             .scope = SettingScope::kafka,
                             .value = "NAME",
                             .otherwise = "prefix and base model, such as lorry-base",
                             .help = "the workers' consumer group"});
    std::string member = row(&Settings::member, "",
                             {.key = "member",
                              .scope = SettingScope::kafka,
                              .value = "NAME",
                              .otherwise = "the host's name",
                              .help = "this worker's name in the group, the same after a restart",
                              .more = "No two workers may have the same name. In Kubernetes, use the pod name of a StatefulSet. It is part "
                                      "of the transactional id, so a restarted worker ends the transaction it left open."});
    std::string group_protocol =
        row(&Settings::group_protocol, "classic",
            {.key = "group_protocol",
             .scope = SettingScope::kafka,
             .value = "classic|consumer",
             .help = "how workers share partitions; consumer is the protocol of KIP-848",
             .more = "With `consumer`, no worker stops for a rebalance, but a killed worker's partitions wait for the session time-out "
                     "that the brokers set, even if it starts again at once."});
    bool exactly_once =
        row(&Settings::exactly_once, true,
            {.key = "exactly_once",
             .scope = SettingScope::kafka,
             .value = "true|false",
             .help = "commit results and offsets in one transaction",
             .more = "With `false` they are committed one after the other, and a worker that hung may publish second results of the same "
                     "id."});
    std::chrono::milliseconds deadline_start = row(&Settings::deadline_start, std::chrono::milliseconds(30'000),
                                                   {.key = "deadline_start",
                                                    .scope = SettingScope::kafka,
                                                    .value = "TIME",
                                                    .help = "how long a command waits for the brokers' first answer",
                                                    .more = "Then it ends with exit code 1 and the brokers' last complaint."});
    std::chrono::milliseconds deadline_later = row(&Settings::deadline_later, std::chrono::milliseconds(300'000),
                                                   {.key = "deadline_later",
                                                    .scope = SettingScope::kafka,
                                                    .value = "TIME",
                                                    .help = "how long the brokers may be away afterwards",
                                                    .more = "A worker then ends with exit code 1; nothing counts as done that was not "
                                                            "published."});
    std::map<std::string, std::string> kafka = {};  // the [kafka] table and --kafka: settings of librdkafka, so no rows of ours

    // The ledger.
    std::string ledger = row(&Settings::ledger, "",
                             {.key = "ledger",
                              .scope = SettingScope::ledger,
                              .value = "FILE",
                              .otherwise = "PREFIX.sqlite in the working folder",
                              .help = "the SQLite file that records the state of jobs and adapters",
                              .more = "A worker fills it from the topics; `lorry jobs` and `lorry adapters list` read it. It may be "
                                      "deleted while no worker runs. Of several workers with the same file, only one writes it."});
    std::int64_t ledger_days = row(&Settings::ledger_days, 30,
                                   {.key = "ledger_days",
                                    .scope = SettingScope::ledger,
                                    .value = "N",
                                    .help = "days after which the ledger forgets a job that has ended; 0: never"});

    // Usage: what jobs and calls took, and what that costs.
    std::string usage_ledger =
        row(&Settings::usage_ledger, "",
            {.key = "usage_ledger",
             .scope = SettingScope::gateway,
             .value = "FILE",
             .otherwise = "none: the gateway does not serve /v1/usage",
             .help = "a ledger that the gateway keeps to serve /v1/usage",
             .more = "Each gateway on a machine needs a file of its own. `ledger_days` says how long it keeps jobs; usage is kept "
                     "for ever."});
    std::string prices = row(&Settings::prices, "",
                             {.key = "prices",
                              .scope = SettingScope::usage,
                              .value = "FILE",
                              .help = "a TOML file of prices per million tokens, for the cost of usage",
                              .more = "[serve.md](serve.md#usage) shows one."});

    // The worker as a service.
    std::string metrics_address =
        row(&Settings::metrics_address, "127.0.0.1:9464",
            {.key = "metrics_address",
             .scope = SettingScope::service,
             .value = "HOST:PORT|off",
             .help = "where a worker serves /metrics and /healthz",
             .more = "Port 0 takes any free port; the event `worker_started` in the log names it. If the default port is taken, a "
                     "worker logs a warning and goes on without the pages; if a port that was set is taken, it ends."});
    std::int64_t in_flight_calls =
        row(&Settings::in_flight_calls, 256,
            {.key = "in_flight_calls",
             .scope = SettingScope::service,
             .value = "N",
             .minimum = 1,
             .help = "calls of a gateway that a worker takes at a time, besides its jobs",
             .more = "Jobs never take the places of calls. While there are calls, they get half of each step or more, and an eighth of "
                     "`in_flight_tokens` and `in_flight_bytes` is always kept for them."});
    std::string log_level =
        row(&Settings::log_level, "info",
            {.key = "log_level",
             .scope = SettingScope::log,
             .value = "debug|info|warn|error",
             .help = "the lowest level that `worker`, `serve` and `up` log to stderr",
             .more = "`info` has two lines for each job of a worker, and one for each request of `lorry serve` and `lorry up`."});

private:
    explicit Settings(std::vector<Setting>& rows) : rows_(&rows) {}
    friend std::span<const Setting> setting_table();

    template <typename T>
    T row(T Settings::*field, std::type_identity_t<T> initial, Setting setting) {
        if (rows_ != nullptr) {
            setting.field = field;
            rows_->push_back(setting);
        }
        return initial;
    }
};

// The rows, in the order of the fields.
std::span<const Setting> setting_table();
const Setting* find_setting(std::string_view key);
std::string flag_of(const Setting& setting);
// Whether `value` lists the words that are allowed.
bool lists_words(const Setting& setting);

// Reads a value's text into its field. The error continues a sentence that begins with the setting's name: "is '0'; allowed is …".
Expected<void, std::string> set_setting(Settings& settings, const Setting& setting, std::string_view text);
// The value as set_setting reads it; "" where nothing is set.
std::string show_setting(const Settings& settings, const Setting& setting);

}  // namespace lorry::ops
