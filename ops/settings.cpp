// The table of settings.
#include "ops/settings.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "ops/units.h"

namespace lorry::ops {
namespace {

using enum SettingScope;

constexpr std::array settings_of_all = {
    Setting{"model", model, &Settings::model, "DIR", "the base model: a folder as Hugging Face writes it"},
    Setting{"base_name", model, &Settings::base_name, "NAME", "what jobs call the base model, besides 'base' (default: the folder's name)"},
    Setting{"adapters", model, &Settings::adapters, "DIR",
            "folder whose sub-folders are PEFT adapters; the worker: root of registered paths"},
    Setting{"device", model, &Settings::device, "auto|cpu|cuda", "where the model runs; auto takes a GPU if there is one"},
    Setting{"dtype", model, &Settings::dtype, "auto|bfloat16|float32",
            "storage of weights, adapters and KV cache; auto is bfloat16 with sums in float32, float32 keeps every bit of the checkpoint"},
    Setting{"quantize", model, &Settings::quantize, "none|int8|int4|fp8",
            "int8: weights as int8 with a scale per output, made at load, and matmul inputs as int8 with a scale per row; int4: the same "
            "with weights of 4.5 bits, embeddings and head left int8; fp8, on a GPU only: as int8 with e4m3, embeddings and head as "
            "--dtype says"},
    Setting{"kv_dtype", model, &Settings::kv_dtype, "auto|int8|fp8",
            "storage of the KV cache; auto is that of --dtype; int8 (on the CPU, 55 % of bfloat16's memory) and fp8 (on a GPU, 52 %): a "
            "scale for each token of each head"},
    Setting{"isa", model, &Settings::isa, "auto|avx512amx|avx512bf16|avx512|avx2|scalar", "instruction set of the CPU kernels"},
    Setting{"threads", model, &Settings::threads, "N",
            "threads that compute (0: the cores that this process may use, within its container's CPU quota)"},
    Setting{
        "kv_memory", model, &Settings::kv_memory, "SIZE",
        "memory for the KV cache, such as 4GiB (default: what the batch can use, within half of what is free; of a GPU's own, within what "
        "adapters leave)"},
    Setting{
        "adapter_memory", model, &Settings::adapter_memory, "SIZE",
        "memory for adapters (default: an eighth of what is free, 2 GiB at most); on a GPU they also borrow what the KV cache can spare"},
    Setting{"graph_memory", model, &Settings::graph_memory, "SIZE",
            "memory for CUDA graphs of decoding steps (default: a 32nd of a GPU's that is free, 512 MiB at most; 0: none)"},
    Setting{"matmul_table", model, &Settings::matmul_table, "FILE",
            "which of cuBLASLt's algorithms multiplies what on a GPU, as bench tune --table writes it (default: the program's own table)"},
    Setting{"max_batch", model, &Settings::max_batch, "N", "sequences that run at a time", 1},
    Setting{"step_tokens", model, &Settings::step_tokens, "N", "tokens computed in one step; longer prompts are cut into chunks", 1},
    Setting{"prefix_cache", model, &Settings::prefix_cache, "true|false", "compute equal beginnings of prompts once"},
    Setting{"in_flight", jobs, &Settings::in_flight, "N", "jobs that are read and not yet committed", 1},
    Setting{"in_flight_tokens", jobs, &Settings::in_flight_tokens, "N",
            "prompt and output tokens that these may come to hold together; a larger job runs alone (0: a million, or what fills the batch "
            "twice)"},
    Setting{"job_bytes_max", jobs, &Settings::job_bytes_max, "SIZE", "a larger job is refused (413)"},
    Setting{"commit_interval", jobs, &Settings::commit_interval, "TIME", "how often results are committed, such as 200ms"},
    Setting{"drain_timeout", jobs, &Settings::drain_timeout, "TIME", "how long running jobs may go on when the program is told to end"},
    Setting{"job_timeout", jobs, &Settings::job_timeout, "TIME", "a job that runs longer ends with request_timeout (0: no limit)"},
    Setting{"brokers", kafka, &Settings::brokers, "HOST:PORT,…", "the Kafka brokers"},
    Setting{"prefix", kafka, &Settings::prefix, "NAME", "of the topics: NAME.jobs, NAME.results, …"},
    Setting{"group", kafka, &Settings::group, "NAME", "the consumer group (default: prefix and base model)"},
    Setting{"member", kafka, &Settings::member, "NAME", "this worker's name, the same after a restart (default: the host's name)"},
    Setting{"group_protocol", kafka, &Settings::group_protocol, "classic|consumer",
            "how workers share partitions; consumer is KIP-848: smoother rebalances, but a killed worker's partitions rest longer"},
    Setting{"exactly_once", kafka, &Settings::exactly_once, "true|false",
            "results and offsets in one transaction; false: without, and a worker that hung may leave second results of the same id"},
    Setting{"deadline_start", kafka, &Settings::deadline_start, "TIME", "how long to wait for the brokers' first answer"},
    Setting{"deadline_later", kafka, &Settings::deadline_later, "TIME", "how long the brokers may be away afterwards"},
    Setting{"ledger", ledger, &Settings::ledger, "FILE", "SQLite file with what is known of jobs and adapters (default: PREFIX.sqlite)"},
    Setting{"ledger_days", ledger, &Settings::ledger_days, "N", "the ledger forgets jobs that ended longer ago (0: never)"},
    Setting{"metrics_address", service, &Settings::metrics_address, "HOST:PORT|off", "where /metrics and /healthz are served"},
    Setting{"log_level", service, &Settings::log_level, "debug|info|warn|error", "of the log on stderr"},
};

std::string wrong(std::string_view text, std::string_view allowed) { return fmt::format("is '{}'; allowed is {}", text, allowed); }

// "a|b|c" in capitals names kinds of values, in small letters the values themselves.
bool lists_words(std::string_view value) {
    return value.find('|') != std::string_view::npos && std::ranges::none_of(value, [](char byte) { return byte >= 'A' && byte <= 'Z'; });
}

bool is_word_of(std::string_view words, std::string_view word) {
    while (!words.empty()) {
        const std::size_t end = std::min(words.find('|'), words.size());
        if (words.substr(0, end) == word) return true;
        words.remove_prefix(std::min(end + 1, words.size()));
    }
    return false;
}

struct Reader {
    Settings& settings;
    const Setting& setting;
    std::string_view text;
    using Result = Expected<void, std::string>;

    Result operator()(std::string Settings::*field) const {
        if (lists_words(setting.value) && !is_word_of(setting.value, text)) return unexpected(wrong(text, setting.value));
        settings.*field = text;
        return {};
    }
    Result operator()(std::int64_t Settings::*field) const {
        const auto value = parse_integer(text);
        if (!value || *value < setting.minimum) return unexpected(wrong(text, fmt::format("an integer from {}", setting.minimum)));
        settings.*field = *value;
        return {};
    }
    Result operator()(bool Settings::*field) const {
        if (text != "true" && text != "false") return unexpected(wrong(text, "true or false"));
        settings.*field = text == "true";
        return {};
    }
    Result operator()(Bytes Settings::*field) const {
        const auto value = parse_bytes(text);
        if (!value) return unexpected(wrong(text, "a size such as 512MiB or 4GiB"));
        (settings.*field).count = *value;
        return {};
    }
    Result operator()(std::optional<Bytes> Settings::*field) const {
        const auto value = parse_bytes(text);
        if (!value) return unexpected(wrong(text, "a size such as 512MiB or 4GiB"));
        settings.*field = Bytes{*value};
        return {};
    }
    Result operator()(std::chrono::milliseconds Settings::*field) const {
        const auto value = parse_duration(text);
        if (!value) return unexpected(wrong(text, "a time such as 200ms, 20s or 5min"));
        settings.*field = *value;
        return {};
    }
};

}  // namespace

std::span<const Setting> setting_table() { return settings_of_all; }

const Setting* find_setting(std::string_view key) {
    const auto* place = std::ranges::find(settings_of_all, key, [](const Setting& setting) -> std::string_view { return setting.key; });
    return place == settings_of_all.end() ? nullptr : place;
}

std::string flag_of(const Setting& setting) {
    std::string flag = fmt::format("--{}", setting.key);
    std::ranges::replace(flag, '_', '-');
    return flag;
}

Expected<void, std::string> set_setting(Settings& settings, const Setting& setting, std::string_view text) {
    return std::visit(Reader{settings, setting, text}, setting.field);
}

std::string show_setting(const Settings& settings, const Setting& setting) {
    return std::visit(
        [&](auto field) -> std::string {
            using T = std::remove_cvref_t<decltype(settings.*field)>;
            if constexpr (std::is_same_v<T, Bytes>) {
                return fmt::format("{}", (settings.*field).count);
            } else if constexpr (std::is_same_v<T, std::optional<Bytes>>) {
                return (settings.*field) ? fmt::format("{}", (settings.*field)->count) : std::string();
            } else if constexpr (std::is_same_v<T, std::chrono::milliseconds>) {
                return fmt::format("{}ms", (settings.*field).count());
            } else {
                return fmt::format("{}", settings.*field);
            }
        },
        setting.field);
}

}  // namespace lorry::ops
