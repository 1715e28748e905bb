// Reading adapter_config.json and PEFT's rules for matching module names (peft/tuners/tuners_utils.py and lora/model.py).
#include "engine/model/adapter_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>

#include "schema/ascii.h"
#include "schema/codec_error.h"
#include "schema/json.h"

namespace lorry::engine {
namespace {

using schema::Json;

constexpr std::int64_t rank_max = 65536;
// The largest models have about 1,000 linear modules.
constexpr std::size_t list_max = 10'000;
constexpr std::size_t bytes_shown = 200;                   // of a value in a message
constexpr std::size_t pattern_instructions_max = 200'000;  // of all patterns; an instruction takes 32 bytes

// What becomes of a key. `read` keys are members of AdapterConfig; `ignored` ones matter only to training; `refused` ones change what is
// computed in ways that Lorry does not support.
enum class Treatment : std::uint8_t { read, ignored, refused };
struct Key {
    std::string_view name;
    Treatment treatment = Treatment::read;
    const char* advice = "";    // of a refusal
    std::string_view harmless;  // a refused key's value, as JSON text, that requests nothing, besides those of asks_for_nothing()
};
constexpr const char* changed_base = "its base weights were changed; convert it to plain LoRA";
// All keys of LoraConfig of PEFT 0.21.2.
constexpr std::array keys = {
    Key{"alora_invocation_tokens", Treatment::refused, "activated LoRA is not supported"},
    Key{"alpha_pattern"},
    Key{"arrow_config", Treatment::refused, "routed LoRA is not supported"},
    Key{"auto_mapping", Treatment::ignored},
    Key{"base_model_name_or_path"},
    Key{"bias"},
    Key{"corda_config", Treatment::refused, changed_base},
    Key{"ensure_weight_tying", Treatment::refused, "tied embeddings cannot be adapted"},
    Key{"eva_config", Treatment::ignored},
    Key{"exclude_modules"},
    Key{"fan_in_fan_out", Treatment::ignored},
    Key{"inference_mode", Treatment::ignored},
    Key{"init_lora_weights"},
    Key{"kasa_config", Treatment::refused, changed_base},
    Key{"layer_replication", Treatment::refused, "replicated layers are not supported"},
    Key{"layers_pattern"},
    Key{"layers_to_transform"},
    Key{"loftq_config", Treatment::refused, changed_base},
    Key{"lora_alpha"},
    Key{"lora_bias"},
    Key{"lora_dropout", Treatment::ignored},
    Key{"lora_ga_config", Treatment::refused, changed_base},
    Key{"megatron_config", Treatment::refused, "Megatron layers are not supported"},
    Key{"megatron_core", Treatment::refused, "Megatron layers are not supported", "\"megatron.core\""},
    Key{"modules_to_save"},
    Key{"monteclora_config", Treatment::ignored},
    Key{"peft_type"},
    Key{"peft_version", Treatment::ignored},
    Key{"qalora_group_size", Treatment::refused, "train with use_qalora = false", "16"},
    Key{"r"},
    Key{"rank_pattern"},
    Key{"revision", Treatment::ignored},
    Key{"runtime_config", Treatment::ignored},
    Key{"target_modules"},
    Key{"target_parameters"},
    Key{"task_type"},
    Key{"trainable_token_indices"},
    Key{"use_bdlora", Treatment::refused, "block-diagonal LoRA is not supported"},
    Key{"use_dora"},
    Key{"use_qalora", Treatment::refused, "train with use_qalora = false"},
    Key{"use_rslora"},
    Key{"velora_config", Treatment::ignored},
};
const Key* key_named(std::string_view name) {
    const auto* const found = std::ranges::find(keys, name, &Key::name);
    return found == keys.end() ? nullptr : found;
}

// These initialize only A and B; the others change the base's weights, too.
constexpr std::array<std::string_view, 6> harmless_inits = {"true", "false", "\"gaussian\"", "\"orthogonal\"", "\"eva\"", "\"mica\""};

bool asks_for_nothing(const Json& value) {
    const std::string text = value.dump();
    return text == "null" || text == "false" || text == "{}" || text == "[]" || text == "\"\"";
}

// Reads members of the config and keeps the first error instead of throwing.
class Reader {
public:
    explicit Reader(const Json& root) : root_(root) {}

    const std::string& error() const { return error_; }
    void refuse(std::string_view key, const Json& value, std::string_view advice) {
        if (!error_.empty()) return;
        error_ = fmt::format("{} = {} is not supported; {}", schema::shortened(key), schema::shortened(value.dump(), bytes_shown), advice);
    }
    const Json* find(std::string_view key) {
        CHECK(key_named(key) != nullptr && key_named(key)->treatment == Treatment::read, "the table says which keys are read");
        const Json* value = root_.find(key);
        return value == nullptr || value->is_null() ? nullptr : value;
    }
    void need(std::string_view key) {
        if (find(key) != nullptr || !error_.empty()) return;
        error_ = fmt::format("{} is {}; it is required", key, root_.find(key) == nullptr ? "missing" : "null");
    }
    void read_bool(std::string_view key, bool& out) {
        const Json* value = find(key);
        if (value == nullptr) return;
        if (!value->is_bool()) return refuse(key, *value, "it must be true or false");
        out = *value->as_bool();
    }
    void rank(std::string_view key, const Json& value, std::int64_t& out) {
        const auto number = value.as_integer();
        if (!number || *number < 1 || *number > rank_max)
            return refuse(key, value, fmt::format("it must be an integer from 1 to {}", rank_max));
        out = *number;
    }
    void alpha(std::string_view key, const Json& value, double& out) {
        const auto number = value.as_number();
        if (!number || !std::isfinite(static_cast<float>(*number))) return refuse(key, value, "it must be a number that fits into float32");
        out = *number;
    }
    std::vector<std::string> texts(std::string_view key) {
        std::vector<std::string> out;
        const Json* value = find(key);
        if (value == nullptr) return out;
        if (value->as_string() != nullptr) return {*value->as_string()};
        if (!value->is_array()) {
            refuse(key, *value, "it must be a string or a list of strings");
            return out;
        }
        if (is_too_long(key, value->as_array()->size())) return out;
        for (const Json& element : *value->as_array()) {
            if (element.as_string() == nullptr)
                refuse(key, *value, "it must be a list of strings");
            else
                out.push_back(*element.as_string());
        }
        return out;
    }
    std::optional<Pattern> pattern(std::string_view key, const Json& value, const std::string& text) {
        auto compiled = Pattern::compile(text);
        if (!compiled) {
            refuse(key, value, fmt::format("the regular expression is not supported: {}", compiled.error()));
            return std::nullopt;
        }
        instructions_ += compiled->size();
        if (instructions_ > pattern_instructions_max) {
            refuse(key, value, "the regular expressions are too large together; name modules in a list instead");
            return std::nullopt;
        }
        return std::move(*compiled);
    }
    // Refuses a list or object with too many elements.
    bool is_too_long(std::string_view key, std::size_t elements) {
        if (elements <= list_max) return false;
        if (error_.empty()) error_ = fmt::format("{} has {} elements; at most {} are supported", key, elements, list_max);
        return true;
    }
    // rank_pattern and alpha_pattern. The order of the keys matters.
    template <typename Value, typename Read>
    void patterns(std::string_view key, std::vector<std::pair<Pattern, Value>>& out, Read read) {
        const Json* value = find(key);
        if (value == nullptr) return;
        if (!value->is_object()) return refuse(key, *value, "it must be an object");
        if (is_too_long(key, value->as_object()->size())) return;
        for (const auto& [text, element] : *value->as_object()) {
            auto compiled = pattern(key, Json(text), text);
            if (!compiled) return;
            Value number{};
            read(fmt::format("{}.{}", key, text), element, number);
            out.emplace_back(std::move(*compiled), number);
        }
    }
    // trainable_token_indices: a list, or an object of lists by the names of modules.
    void tokens(std::string_view key, std::vector<TrainedTokens>& out) {
        const Json* value = find(key);
        if (value == nullptr) return;
        const auto read = [&](const std::optional<std::string>& module, const Json& list) {
            constexpr const char* wanted = "it must be a list of different token ids, or an object of such lists";
            if (!list.is_array()) return refuse(key, *value, wanted);
            if (is_too_long(key, list.as_array()->size())) return;
            TrainedTokens trained{.module = module, .tokens = {}};
            std::set<std::int64_t> seen;
            for (const Json& element : *list.as_array()) {
                const auto token = element.as_integer();
                if (!token || *token < 0 || !seen.insert(*token).second) return refuse(key, *value, wanted);
                trained.tokens.push_back(*token);
            }
            if (!trained.tokens.empty()) out.push_back(std::move(trained));
        };
        if (!value->is_object()) return read(std::nullopt, *value);
        for (const auto& [module, list] : *value->as_object()) read(module, list);
    }
    void refuse_unsupported() {
        for (const auto& [name, value] : *root_.as_object()) {
            if (asks_for_nothing(value)) continue;
            const Key* const key = key_named(name);
            if (key == nullptr) {
                refuse(name, value, "the key is unknown, and ignoring it could change the results");
            } else if (key->treatment == Treatment::refused && value.dump() != key->harmless) {
                refuse(name, value, key->advice);
            }
        }
    }

private:
    const Json& root_;
    std::size_t instructions_ = 0;  // of the patterns so far
    std::string error_;
};

// The layer number in a module's path: the number after the name of a list of layers, as PEFT finds it.
std::optional<std::int64_t> layer_of(std::string_view path, const std::vector<std::string>& lists) {
    const auto number_at = [&](std::size_t begin) -> std::optional<std::int64_t> {
        std::int64_t number = 0;
        const auto [end, error] = std::from_chars(path.data() + begin, path.data() + path.size(), number);
        if (error != std::errc() || end == path.data() + path.size() || *end != '.') return std::nullopt;
        return number;
    };
    if (lists.empty()) {
        // The first number that at least two components precede.
        const std::size_t first = path.find('.');
        for (std::size_t dot = first == path.npos ? first : path.find('.', first + 1); dot != path.npos; dot = path.find('.', dot + 1)) {
            if (const auto number = number_at(dot + 1)) return number;
        }
        return std::nullopt;
    }
    for (const std::string& list : lists) {
        for (std::size_t at = path.find(list + "."); at != path.npos; at = path.find(list + ".", at + 1)) {
            if (at != 0 && path[at - 1] != '.') continue;
            if (const auto number = number_at(at + list.size() + 1)) return number;
        }
    }
    return std::nullopt;
}

bool names_module(std::string_view path, std::string_view name) {
    return path.ends_with(name) && (path.size() == name.size() || path[path.size() - name.size() - 1] == '.');
}

// True if `name` names the module or one that it is part of.
bool names_whole(std::string_view path, std::string_view name) {
    for (std::size_t at = path.find(name); at != path.npos; at = path.find(name, at + 1)) {
        const std::size_t end = at + name.size();
        if ((at == 0 || path[at - 1] == '.') && (end == path.size() || path[end] == '.')) return true;
    }
    return false;
}

// Reads which modules and layers the adapter changes: the keys about targets, exclusions, saved modules and layers.
void read_modules(Reader& reader, AdapterConfig& out) {
    out.parameters = reader.texts("target_parameters");
    if (out.parameters.empty()) reader.need("target_modules");
    const auto targets = reader.find("target_modules");
    const std::string* one = targets == nullptr ? nullptr : targets->as_string();
    if (targets != nullptr) out.target_text = schema::shortened(targets->dump(), bytes_shown);
    if (one != nullptr) {
        out.all_linear = schema::lower_case(*one) == "all-linear";
        if (!out.all_linear) out.target_pattern = reader.pattern("target_modules", *targets, *one);
    } else {
        out.targets = reader.texts("target_modules");
    }
    const auto excludes = reader.find("exclude_modules");
    if (excludes != nullptr && excludes->as_string() != nullptr) {
        out.exclude_pattern = reader.pattern("exclude_modules", *excludes, *excludes->as_string());
    } else {
        out.excludes = reader.texts("exclude_modules");
    }
    out.saved = reader.texts("modules_to_save");
    reader.tokens("trainable_token_indices", out.tokens);
    out.layer_lists = reader.texts("layers_pattern");
    for (const std::string& list : out.layer_lists) {
        if (list.find_first_of("\\^$|?*+()[]{}") != list.npos)
            reader.refuse("layers_pattern", Json(list), "it must be a plain name, such as layers");
    }
    if (const Json* layers = reader.find("layers_to_transform")) {
        const Json::Array single = {*layers};
        if (layers->is_array() && reader.is_too_long("layers_to_transform", layers->as_array()->size())) return;
        for (const Json& layer : layers->is_array() ? *layers->as_array() : single) {
            const auto number = layer.as_integer();
            if (!number || *number < 0)
                reader.refuse("layers_to_transform", *layers, "it must be a layer number or a list of layer numbers");
            else
                out.layers.push_back(*number);
        }
        if (one != nullptr && !out.layers.empty())
            reader.refuse("layers_to_transform", *layers, "target_modules must be a list if this key is set");
    }
}

}  // namespace

Expected<AdapterConfig, std::string> AdapterConfig::parse(std::string_view text) {
    const auto root = Json::parse(text);
    if (!root) return unexpected("not JSON: " + root.error());
    if (!root->is_object()) return unexpected(fmt::format("the file must hold a JSON object, not {}", root->kind()));
    Reader reader(*root);
    AdapterConfig out;

    reader.need("peft_type");
    if (const Json* type = reader.find("peft_type"); type != nullptr && type->dump() != "\"LORA\"") {
        reader.refuse("peft_type", *type, "only LORA is supported");
    }
    if (const Json* task = reader.find("task_type"); task != nullptr) {
        const std::string name = task->dump();
        if (name == "\"SEQ_CLS\"") {
            out.classifies = PoolingTask::classify;
        } else if (name == "\"TOKEN_CLS\"") {
            out.classifies = PoolingTask::token_classify;
        } else if (name != "\"CAUSAL_LM\"" && name != "\"FEATURE_EXTRACTION\"") {
            reader.refuse("task_type", *task, "supported: CAUSAL_LM, FEATURE_EXTRACTION, SEQ_CLS, TOKEN_CLS");
        }
    }
    if (const Json* base = reader.find("base_model_name_or_path"); base != nullptr && base->as_string() != nullptr)
        out.base = *base->as_string();
    if (const Json* rank = reader.find("r")) reader.rank("r", *rank, out.rank);
    if (const Json* alpha = reader.find("lora_alpha")) reader.alpha("lora_alpha", *alpha, out.alpha);
    reader.read_bool("use_rslora", out.rank_stabilized);
    reader.read_bool("lora_bias", out.lora_bias);
    reader.read_bool("use_dora", out.has_magnitudes);
    if (out.has_magnitudes && out.lora_bias) reader.refuse("lora_bias", *reader.find("lora_bias"), "PEFT has no DoRA with it");
    reader.patterns("rank_pattern", out.ranks,
                    [&](const std::string& key, const Json& value, std::int64_t& rank) { reader.rank(key, value, rank); });
    reader.patterns("alpha_pattern", out.alphas,
                    [&](const std::string& key, const Json& value, double& alpha) { reader.alpha(key, value, alpha); });

    if (const Json* bias = reader.find("bias")) {
        const std::string value = bias->dump();
        if (value == "\"all\"")
            out.biases = Biases::all;
        else if (value == "\"lora_only\"")
            out.biases = Biases::lora_only;
        else if (value != "\"none\"")
            reader.refuse("bias", *bias, "it must be none, all or lora_only");
    }
    if (const Json* init = reader.find("init_lora_weights")) {
        if (std::find(harmless_inits.begin(), harmless_inits.end(), init->dump()) == harmless_inits.end()) {
            reader.refuse("init_lora_weights", *init, "its base weights were changed; convert it to plain LoRA");
        }
    }

    read_modules(reader, out);
    reader.refuse_unsupported();
    if (!reader.error().empty()) return unexpected(reader.error());
    return out;
}

bool AdapterConfig::targets_module(const std::string& path, MatchSteps& steps) const {
    const auto named_in = [&](const std::vector<std::string>& names) {
        return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return names_module(path, name); });
    };
    if ((exclude_pattern && exclude_pattern->matches(path, steps)) || named_in(excludes)) return false;
    // A module that is saved whole, or is part of one, is not a target.
    if (std::any_of(saved.begin(), saved.end(), [&](const std::string& name) { return names_whole(path, name); })) return false;
    if (all_linear) return true;
    if (target_pattern) return target_pattern->matches(path, steps);
    // A target that is the whole path is one in any layer.
    if (std::ranges::find(targets, path) != targets.end()) return true;
    if (!named_in(targets)) return false;
    if (layers.empty()) return true;
    const auto layer = layer_of(path, layer_lists);
    return layer && std::find(layers.begin(), layers.end(), *layer) != layers.end();
}

bool AdapterConfig::targets_parameter(const std::string& path) const {
    return std::ranges::any_of(parameters, [&](const std::string& name) { return names_module(path, name); });
}

bool AdapterConfig::saves_module(const std::string& path) const {
    return std::any_of(saved.begin(), saved.end(), [&](const std::string& name) { return path.ends_with(name); });
}

std::int64_t AdapterConfig::rank_of(const std::string& path, MatchSteps& steps) const {
    const auto found = std::find_if(ranks.begin(), ranks.end(), [&](const auto& row) { return row.first.matches_tail(path, steps); });
    return found != ranks.end() ? found->second : rank;
}

float AdapterConfig::scale_of(const std::string& path, std::int64_t module_rank, MatchSteps& steps) const {
    const auto found = std::find_if(alphas.begin(), alphas.end(), [&](const auto& row) { return row.first.matches_tail(path, steps); });
    const double used = found != alphas.end() ? found->second : alpha;
    const auto divisor = static_cast<double>(module_rank);
    return static_cast<float>(used / (rank_stabilized ? std::sqrt(divisor) : divisor));
}

}  // namespace lorry::engine
