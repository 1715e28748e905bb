// Runs the same texts through each classifier in each format: one at a time, and all at once.
#include "ops/bench/experiments/quantize.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <random>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "consumer/probabilities.h"
#include "ops/bench/random_model.h"
#include "ops/bench/throughput_bench.h"
#include "ops/bench/workload.h"
#include "ops/units.h"

namespace lorry::ops {
namespace {

struct ClassifierShape {
    const char* name;
    const char* config;  // config.json
};
// BERT-base and DeBERTa-v3-base, whose model_type is deberta-v2, each with four classes.
constexpr std::array shapes = {
    ClassifierShape{"BERT", R"({"model_type": "bert", "architectures": ["BertForSequenceClassification"], "hidden_size": 768,
    "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12, "vocab_size": 30522, "max_position_embeddings": 512,
    "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12, "num_labels": 4, "torch_dtype": "bfloat16"})"},
    ClassifierShape{"DeBERTa-v2", R"({"model_type": "deberta-v2", "architectures": ["DebertaV2ForSequenceClassification"],
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12, "vocab_size": 128100,
    "max_position_embeddings": 512, "type_vocab_size": 0, "hidden_act": "gelu", "layer_norm_eps": 1e-07, "relative_attention": true,
    "position_buckets": 256, "max_relative_positions": -1, "norm_rel_ebd": "layer_norm", "share_att_key": true,
    "pos_att_type": ["p2c", "c2p"], "position_biased_input": false, "pooler_hidden_act": "gelu", "num_labels": 4,
    "torch_dtype": "bfloat16"})"}};

// The first one is what the others are compared with.
constexpr std::array formats = {StorageFormat{"float32", "none"}, StorageFormat{"bfloat16", "none"}, StorageFormat{"bfloat16", "int8"}};

constexpr TokenRange text_tokens{16, 128};

// The table's columns. Rows are sorted by model, then by format.
enum : std::size_t { model_name, weights, weight_bytes, alone_seconds, bulk_seconds, highest_probability, same_class, largest_change };

// The shape's config.json; that of a tiny model of its kind for a quick course.
std::string config_of(const ClassifierShape& shape, bool quick) {
    if (!quick) return shape.config;
    schema::Json config = *schema::Json::parse(shape.config);
    for (const auto& [key, value] : std::initializer_list<std::pair<const char*, std::int64_t>>{
             {"hidden_size", 64}, {"intermediate_size", 96}, {"num_hidden_layers", 2}, {"num_attention_heads", 4}, {"vocab_size", 100}})
        config.set(key, value);
    return config.dump();
}

// One classifier in one format, and the texts that it is asked about.
class Classifier {
public:
    Classifier(const Course& course, const std::filesystem::path& folder, const StorageFormat& format, std::int64_t texts)
        : setup_(settings_of(course, folder, format)), logits_(static_cast<std::size_t>(texts)) {
        const engine::ModelConfig& config = setup_.model().config();
        for (std::size_t i = 0; i < logits_.size(); ++i) {
            std::mt19937_64 random(i);
            engine::Request& request = requests_.emplace_back();
            request.id = i;
            request.prompt = made_up_prompt(config, i, text_tokens.draw(random));
            request.pooling = engine::PoolingTask::classify;
        }
    }

    // Classifies all texts, `together` of them at a time. Returns the seconds per text.
    double run(std::size_t together) {
        std::vector<engine::Request> requests = requests_;
        const auto begin = engine::Clock::now();
        keep_full(setup_.engine(), together, requests,
                  [&](engine::Result& result) { logits_[result.id].assign(result.pooled.begin(), result.pooled.end()); });
        return std::chrono::duration<double>(engine::Clock::now() - begin).count() / static_cast<double>(requests_.size());
    }

    // Of the last run: [texts][classes].
    const std::vector<std::vector<double>>& logits() const { return logits_; }
    std::size_t weight_bytes() const { return setup_.model().weight_bytes(); }
    std::string storage() const { return setup_.storage(); }

private:
    static Settings settings_of(const Course& course, const std::filesystem::path& folder, const StorageFormat& format) {
        Settings settings;
        settings.model = folder.string();
        settings.device = "cpu";
        settings.threads = course.settings.threads;
        settings.isa = course.settings.isa;
        format.put_into(settings);
        return settings;
    }

    EngineSetup setup_;
    std::vector<engine::Request> requests_;
    std::vector<std::vector<double>> logits_;
};

// The mean logit of each class.
std::vector<double> centre_of(const std::vector<std::vector<double>>& logits) {
    std::vector<double> centre(logits.front().size(), 0.0);
    for (const std::vector<double>& text : logits) {
        for (std::size_t label = 0; label < centre.size(); ++label) centre[label] += text[label] / static_cast<double>(logits.size());
    }
    return centre;
}

Probabilities probabilities_of(const std::vector<std::vector<double>>& logits, std::span<const double> centre) {
    Probabilities probabilities;
    for (std::vector<double> text : logits) {
        for (std::size_t label = 0; label < text.size(); ++label) text[label] -= centre[label];
        probabilities.push_back(consumer::softmax(text));
    }
    return probabilities;
}

double mean_of_highest(const Probabilities& probabilities) {
    double sum = 0.0;
    for (const std::vector<double>& text : probabilities) sum += std::ranges::max(text);
    return sum / static_cast<double>(probabilities.size());
}

// Appends a row for each format.
void compare_formats(const Course& course, const ClassifierShape& shape, std::int64_t texts, Table& table) {
    const std::filesystem::path folder = course.scratch / shape.name;
    write_random_model(config_of(shape, course.quick), folder);
    std::vector<std::unique_ptr<Classifier>> classifiers;
    for (const StorageFormat& format : formats) classifiers.push_back(std::make_unique<Classifier>(course, folder, format, texts));
    const std::array<std::size_t, 2> together = {1, static_cast<std::size_t>(texts)};
    const std::vector<double> seconds = least_in_turn(tries_of(course), classifiers.size() * together.size(), [&](std::size_t way) {
        return classifiers[way / together.size()]->run(together[way % together.size()]);
    });
    // A random head prefers one class for all texts. A bias that centres the logits, equal for all formats, makes the texts decide.
    const std::vector<double> centre = centre_of(classifiers.front()->logits());
    const Probabilities exact = probabilities_of(classifiers.front()->logits(), centre);
    for (std::size_t i = 0; i < classifiers.size(); ++i) {
        const Classifier& classifier = *classifiers[i];
        const Probabilities probabilities = probabilities_of(classifier.logits(), centre);
        const Agreement agreement = agreement_of(exact, probabilities);
        table.rows.push_back({shape.name, classifier.storage(), static_cast<double>(classifier.weight_bytes()),
                              seconds[i * together.size()], seconds[i * together.size() + 1], mean_of_highest(probabilities),
                              agreement.same_class, agreement.largest_change});
    }
    std::filesystem::remove_all(folder);
}

std::size_t row_of(std::size_t model, std::size_t format) { return model * formats.size() + format; }

// "BERT 3.9 times smaller, …": the last format against the first.
std::string say_saved(const Table& table, std::size_t model) {
    const auto times = [&](std::size_t column) {
        return table.number(row_of(model, 0), column) / table.number(row_of(model, formats.size() - 1), column);
    };
    return fmt::format("{} {:.1f} times smaller, {:.1f} times faster one text at a time and {:.1f} times in bulk", shapes[model].name,
                       times(weight_bytes), times(alone_seconds), times(bulk_seconds));
}

// A bar of each format for each model and column.
std::vector<Series> bars(const Table& table, const std::vector<std::size_t>& columns) {
    std::vector<Series> out;
    for (std::size_t format = 0; format < formats.size(); ++format) {
        Series& series = out.emplace_back(Series{.name = std::get<std::string>(table.rows[format][weights]), .points = {}});
        for (std::size_t model = 0; model < shapes.size(); ++model) {
            for (const std::size_t column : columns) {
                series.points.push_back({.x = static_cast<double>(series.points.size()),
                                         .y = table.number(row_of(model, format), column) * table.columns[column].scale});
            }
        }
    }
    return out;
}

}  // namespace

Agreement agreement_of(const Probabilities& one, const Probabilities& other) {
    CHECK(!one.empty() && one.size() == other.size(), "both have the same texts");
    std::size_t same = 0;
    Agreement agreement;
    for (std::size_t text = 0; text < one.size(); ++text) {
        if (consumer::likeliest(one[text]) == consumer::likeliest(other[text])) ++same;
        for (std::size_t label = 0; label < one[text].size(); ++label)
            agreement.largest_change = std::max(agreement.largest_change, std::abs(one[text][label] - other[text][label]));
    }
    agreement.same_class = static_cast<double>(same) / static_cast<double>(one.size());
    return agreement;
}

void quantize(Course& course, Experiment& experiment) {
    const std::int64_t texts = course.quick ? 8 : 64;
    Table& table = experiment.table;
    table.columns = {{"model", "classifier"},
                     {"weights", "weights"},
                     {"weight_bytes", "weights, MiB", 1.0 / (1 << 20), 1},
                     {"alone_seconds", "one at a time, ms a text", 1e3, 1},
                     {"bulk_seconds", "in bulk, ms a text", 1e3, 1},
                     {"highest_probability", "mean highest probability", 1.0, 2},
                     {"same_class", "same class, %", 100.0, 1},
                     {"largest_change", "largest change", 1.0, 4}};
    for (const ClassifierShape& shape : shapes) compare_formats(course, shape, texts, table);

    std::string saved;
    Agreement worst{.same_class = 1.0};
    for (std::size_t model = 0; model < shapes.size(); ++model) {
        const std::size_t last = row_of(model, formats.size() - 1);
        saved += (model > 0 ? ", and " : "") + say_saved(table, model);
        worst = {.same_class = std::min(worst.same_class, table.number(last, same_class)),
                 .largest_change = std::max(worst.largest_change, table.number(last, largest_change))};
    }
    experiment.finding = fmt::format(
        "int8 in place of float32 makes {}. At least {:.1f} % of {} texts keep their class, and a probability changes by at most {:.4f} "
        "(random weights; {} to {} made-up tokens a text).",
        saved, 100.0 * worst.same_class, texts, worst.largest_change, text_tokens.low, text_tokens.high);

    std::vector<std::string> names;
    std::vector<std::string> ways;
    for (const ClassifierShape& shape : shapes) {
        names.emplace_back(shape.name);
        for (const char* way : {"one at a time", "in bulk"}) ways.push_back(fmt::format("{}, {}", shape.name, way));
    }
    const std::string note = "classifiers of the base size with random weights";
    experiment.charts.push_back({.name = "quantize-memory",
                                 .title = "Weights of classifiers by format",
                                 .y = {"MiB"},
                                 .categories = names,
                                 .series = bars(table, {weight_bytes}),
                                 .note = note});
    experiment.charts.push_back({.name = "quantize-time",
                                 .title = "Time to classify a text, by format of the weights",
                                 .y = {"ms per text"},
                                 .categories = ways,
                                 .series = bars(table, {alone_seconds, bulk_seconds}),
                                 .note = note});
}

}  // namespace lorry::ops
