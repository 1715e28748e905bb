// What `lorry check-model` finds in a model folder and its adapters without loading weights, as values, text and JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/adapter_folder.h"
#include "engine/model/model.h"
#include "ops/settings.h"
#include "schema/json.h"

namespace lorry::ops {

struct AdapterReport {
    std::string name;
    std::optional<engine::AdapterInfo> info;
    std::string problem;  // why the adapter is refused; empty if there is info
};

// How many sequences of `context` tokens the KV cache holds.
struct ContextFit {
    std::int64_t context = 0;
    std::int64_t sequences = 0;
};

struct ModelCheck {
    std::string folder;
    engine::ModelReport model;
    std::vector<std::string> problems;  // why `run` and `worker` refuse it: weights, tokenizer, chat template
    std::vector<std::string> remarks;   // what works but is worth knowing
    bool has_tokenizer = false;
    bool has_chat_template = false;
    std::size_t weight_bytes = 0;  // of the weights and the table of positions, as stored on the device
    std::size_t kv_token_bytes = 0;
    std::size_t memory_limit = 0;
    std::size_t memory_available = 0;
    std::size_t kv_bytes = 0;  // that `run` and `worker` would take
    std::vector<ContextFit> fits;
    std::vector<AdapterReport> adapters;
};

// Throws std::runtime_error if the folder does not hold a model that Lorry can read.
ModelCheck check_model(const Settings& settings);

std::string show(const ModelCheck& check);
schema::Json json_of(const ModelCheck& check);

}  // namespace lorry::ops
