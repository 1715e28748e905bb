// A TOML file: currency = "EUR", a table [models.NAME] for each model, and [others].
#include "ops/price_file.h"

#include <toml++/toml.h>

#include <cmath>

#include <fmt/format.h>

#include "ops/command.h"

namespace lorry::ops {
namespace {

using schema::Price;
using schema::Prices;

class PriceReader {
public:
    explicit PriceReader(const std::filesystem::path& file) : file_(file) {}

    Prices read() const {
        Prices prices;
        const toml::table table = parse();
        for (const auto& [name, node] : table) {
            const std::string_view key = name.str();
            if (key == "currency") {
                if (!node.is_string()) fail(node, "currency must be a string, such as \"EUR\"");
                prices.currency = node.as_string()->get();
            } else if (key == "others") {
                prices.others = price(node, "others");
            } else if (key == "models" && node.is_table()) {
                for (const auto& [model, each] : *node.as_table()) {
                    const std::string path = fmt::format("models.{}", model.str());
                    prices.models.emplace(model.str(), price(each, path));
                }
            } else {
                fail(node, fmt::format("unknown key '{}'; allowed are currency, [models.NAME] and [others]", key));
            }
        }
        if (prices.models.empty() && !prices.others) {
            throw UsageError(fmt::format("{}: there are no prices; write a table [models.NAME] or [others]", file_.string()));
        }
        return prices;
    }

private:
    toml::table parse() const {
        if (!std::filesystem::is_regular_file(file_)) throw UsageError(fmt::format("--prices: there is no file {}", file_.string()));
        try {
            return toml::parse_file(file_.string());
        } catch (const toml::parse_error& error) {
            throw UsageError(fmt::format("{}, line {}: {}", file_.string(), error.source().begin.line, error.description()));
        }
    }

    [[noreturn]] void fail(const toml::node& node, const std::string& message) const {
        throw UsageError(fmt::format("{}, line {}: {}", file_.string(), node.source().begin.line, message));
    }

    Price price(const toml::node& node, const std::string& path) const {
        if (!node.is_table()) fail(node, fmt::format("{} must be a table with prompt and completion", path));
        Price price;
        bool has_prompt = false;
        bool has_completion = false;
        for (const auto& [name, value] : *node.as_table()) {
            const std::string_view key = name.str();
            const std::optional<double> number = value.value<double>();
            if (!number || !std::isfinite(*number) || *number < 0.0) {
                fail(value, fmt::format("{}.{} must be the price of a million tokens, a number from 0", path, key));
            }
            if (key == "prompt") {
                price.prompt = *number;
                has_prompt = true;
            } else if (key == "completion") {
                price.completion = *number;
                has_completion = true;
            } else if (key == "cached") {
                price.cached = *number;
            } else {
                fail(value, fmt::format("unknown key '{}' in [{}]; allowed are prompt, completion and cached", key, path));
            }
        }
        if (!has_prompt || !has_completion) fail(node, fmt::format("[{}] needs prompt and completion", path));
        return price;
    }

    const std::filesystem::path& file_;
};

}  // namespace

std::optional<Prices> prices_of(const Settings& settings) {
    if (settings.prices.empty()) return std::nullopt;
    return read_prices(settings.prices);
}

Prices read_prices(const std::filesystem::path& file) { return PriceReader(file).read(); }

}  // namespace lorry::ops
