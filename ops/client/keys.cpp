// `lorry keys`: makes, lists and revokes the keys with which clients call the gateway.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "consumer/kafka/client.h"
#include "ops/client/compacted_topic.h"
#include "ops/command.h"
#include "ops/configuration.h"
#include "ops/flag_checks.h"
#include "ops/kafka_settings.h"
#include "ops/units.h"
#include "schema/codec.h"
#include "schema/json.h"
#include "schema/key.h"
#include "schema/key_scopes.h"

namespace lorry::ops {
namespace {

using schema::KeyRecord;

std::string state_of(const KeyRecord& key) {
    if (key.revoked) return "revoked";
    if (key.expires && *key.expires <= now()) return "expired";
    return "valid";
}

std::string show_limits(const schema::KeyLimits& limits) {
    std::vector<std::string> words;
    const auto add = [&](const std::optional<std::int64_t>& limit, const char* unit) {
        if (limit) words.push_back(fmt::format("{} {}", show_count(*limit), unit));
    };
    add(limits.requests_per_minute, "requests/min");
    add(limits.tokens_per_minute, "tokens/min");
    add(limits.tokens_per_day, "tokens/day");
    add(limits.calls_at_once, "at once");
    add(limits.batch_jobs, "batch jobs");
    return words.empty() ? "-" : fmt::format("{}", fmt::join(words, ", "));
}

class KeysCommand final : public Command {
public:
    void declare(CLI::App& app) override {
        app.require_subcommand(1);
        create_ = app.add_subcommand("create", "makes a key and prints it, this once");
        create_->add_option("--tenant", tenant_, "whose calls are made with it; tenants see nothing of each other")
            ->type_name("NAME")
            ->required();
        create_->add_option("--name", name_, "what it is for, for people")->type_name("TEXT")->required();
        create_
            ->add_option("--models", models_,
                         "the adapters that it may call, 'base' for the base model, '*' for all (default: the base model, and all "
                         "adapters of gateways with share_adapters)")
            ->type_name("NAME,…")
            ->delimiter(',');
        create_->add_option("--urls", urls_, "the urls that it may call, such as /v1/embeddings (default: all)")
            ->type_name("URL,…")
            ->delimiter(',');
        create_->add_flag("--batches", batches_, "it may also use files and batches");
        create_->add_flag("--admin", admin_, "it may also read what concerns all tenants, such as the metrics");
        create_->add_option("--expires", expires_, "how long it is good for, such as 90d (default: until it is revoked)")
            ->type_name("TIME");
        create_->add_option("--requests-per-minute", limits_.requests_per_minute, "calls that may begin (default: any number)")
            ->type_name("N")
            ->check(whole_number_from(1));
        create_->add_option("--tokens-per-minute", limits_.tokens_per_minute, "of prompts and answers (default: any number)")
            ->type_name("N")
            ->check(whole_number_from(1));
        create_->add_option("--tokens-per-day", limits_.tokens_per_day, "the same, from midnight UTC on (default: any number)")
            ->type_name("N")
            ->check(whole_number_from(1));
        create_->add_option("--calls-at-once", limits_.calls_at_once, "calls that may wait and run (default: any number)")
            ->type_name("N")
            ->check(whole_number_from(1));
        create_->add_option("--batch-jobs", limits_.batch_jobs, "jobs of its batches that may be without a result (default: any number)")
            ->type_name("N")
            ->check(whole_number_from(1));
        create_->add_flag("--json", json_, "as a JSON object");
        create_configuration_.declare(*create_, {SettingScope::kafka});

        list_ = app.add_subcommand("list", "all keys, by their ids; the keys themselves are nowhere");
        list_->add_option("--tenant", tenant_, "those of one tenant")->type_name("NAME");
        list_->add_flag("--json", json_, "a JSON object per line");
        list_configuration_.declare(*list_, {SettingScope::kafka});

        revoke_ = app.add_subcommand("revoke", "makes keys useless, at once and for ever");
        revoke_->add_option("ID", ids_, "their ids: the digits after 'lorry-'")->required();
        revoke_configuration_.declare(*revoke_, {SettingScope::kafka});
    }

    ExitCode run() override {
        if (create_->parsed()) return create(create_configuration_.load());
        if (revoke_->parsed()) return revoke(revoke_configuration_.load());
        return list(list_configuration_.load());
    }

private:
    ExitCode create(const Settings& settings) {
        KeyRecord key{.tenant = tenant_, .name = name_, .created = now(), .scopes = scopes(), .limits = limits_};
        for (const auto& [what, label] : {std::pair("tenant", tenant_), std::pair("name", name_)}) {
            if (const auto error = schema::key_label_error(what, label)) throw UsageError(fmt::format("--{}: {}", what, *error));
        }
        if (!expires_.empty()) {
            const auto time = parse_duration(expires_);
            const auto end =
                time && time->count() > 0 ? schema::timestamp_of((key.created + *time).time_since_epoch().count()) : std::nullopt;
            if (!end) throw UsageError(fmt::format("--expires is '{}'; allowed is a time such as 90d or 12h", expires_));
            key.expires = end;
        }
        const schema::NewKey drawn = schema::draw_key();
        key.id = drawn.id;
        key.hash = schema::sha256_of(drawn.text);
        // What gateways would refuse is not written.
        if (const auto read = schema::parse_key(schema::encode_key(key)); !read) throw UsageError(read.error());
        consumer::write_keys(kafka_config_of(settings), topics_of(settings).keys(), {key});
        if (json_) {
            schema::Json object = schema::Json::parse(schema::describe_key(key)).value();
            object.set("key", drawn.text);
            std::cout << object.dump() << '\n';
        } else {
            std::cout << drawn.text << '\n';
        }
        std::cerr << fmt::format("key {} of tenant {} is made: {}; {}.\nKeep it now: it is not stored and cannot be shown again.\n", key.id,
                                 key.tenant, schema::show_scopes(key.scopes),
                                 key.expires ? fmt::format("it expires at {} UTC", show_time(key.expires)) : "it does not expire");
        return ExitCode::done;
    }

    schema::KeyScopes scopes() const {
        schema::KeyScopes scopes{.batches = batches_, .admin = admin_};
        if (!models_.empty()) scopes.models = models_;
        for (const std::string& model : models_) {
            const bool is_name_of_ours = model == "base" || model == schema::all_models;
            if (const auto error = is_name_of_ours ? std::nullopt : schema::adapter_name_error(model))
                throw UsageError(fmt::format("--models: {}", *error));
        }
        for (const std::string& url : urls_) {
            const auto endpoint = schema::endpoint_at(url);
            if (!endpoint) {
                std::vector<std::string_view> known;
                for (const schema::Endpoint each : schema::endpoints) known.push_back(schema::row_of(each).url);
                throw UsageError(fmt::format("--urls: '{}' is not served; allowed are {}", url, fmt::join(known, ", ")));
            }
            if (!scopes.endpoints) scopes.endpoints.emplace();
            scopes.endpoints->push_back(*endpoint);
        }
        return scopes;
    }

    // Ordered by tenant, then by time. Warns of records that cannot be read.
    static std::vector<KeyRecord> read(const Settings& settings) {
        std::vector<KeyRecord> keys;
        for (const auto& [id, value] : read_compacted(settings, topics_of(settings).keys())) {
            auto key = schema::parse_key(value);
            if (key) {
                keys.push_back(*std::move(key));
            } else {
                std::cerr << fmt::format("lorry: the record of \"{}\" in {}: {}\n", schema::repair_utf8(id), topics_of(settings).keys(),
                                         key.error());
            }
        }
        std::ranges::stable_sort(keys, {}, [](const KeyRecord& key) { return std::pair(key.tenant, key.created); });
        return keys;
    }

    ExitCode list(const Settings& settings) const {
        std::vector<std::vector<std::string>> rows = {{"ID", "TENANT", "NAME", "STATE", "CREATED", "EXPIRES", "MAY", "LIMITS"}};
        for (const KeyRecord& key : read(settings)) {
            if (!tenant_.empty() && key.tenant != tenant_) continue;
            if (json_) std::cout << schema::describe_key(key) << '\n';
            rows.push_back({key.id, key.tenant, key.name, state_of(key), show_time(key.created), show_time(key.expires),
                            schema::show_scopes(key.scopes), show_limits(key.limits)});
        }
        if (rows.size() == 1) {
            std::cerr << "there are no keys; `lorry keys create --tenant NAME --name TEXT` makes one\n";
        } else if (!json_) {
            std::cout << show_table(rows);
        }
        return ExitCode::done;
    }

    ExitCode revoke(const Settings& settings) const {
        for (const std::string& id : ids_) {
            // The argument is not quoted: it may be a key.
            if (!schema::is_key_id(id)) {
                throw UsageError(
                    fmt::format("keys revoke takes ids, not keys: the {} digits after 'lorry-', as `lorry keys list` shows them",
                                schema::key_id_digits));
            }
        }
        std::vector<KeyRecord> revoked;
        int unknown = 0;
        const std::vector<KeyRecord> keys = read(settings);
        for (const std::string& id : ids_) {
            const auto key = std::ranges::find(keys, id, &KeyRecord::id);
            if (key == keys.end()) {
                ++unknown;
                std::cerr << fmt::format("lorry: {}: there is no key of that id; `lorry keys list` shows them\n", id);
            } else if (key->revoked) {
                std::cerr << fmt::format("{}: was revoked at {} UTC\n", id, show_time(key->revoked));
            } else {
                revoked.push_back(*key);
                revoked.back().revoked = now();
            }
        }
        if (!revoked.empty()) consumer::write_keys(kafka_config_of(settings), topics_of(settings).keys(), revoked);
        for (const KeyRecord& key : revoked) {
            std::cerr << fmt::format("{}: revoked; it was {} of tenant {}\n", key.id, key.name, key.tenant);
        }
        return unknown == 0 ? ExitCode::done : ExitCode::failed;
    }

    CLI::App* create_ = nullptr;
    CLI::App* list_ = nullptr;
    CLI::App* revoke_ = nullptr;
    // One per subcommand, because each has flags of its own.
    Configuration create_configuration_;
    Configuration list_configuration_;
    Configuration revoke_configuration_;
    std::string tenant_;
    std::string name_;
    std::vector<std::string> models_;
    std::vector<std::string> urls_;
    std::vector<std::string> ids_;
    std::string expires_;
    schema::KeyLimits limits_;
    bool batches_ = false;
    bool admin_ = false;
    bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_keys_command() { return std::make_unique<KeysCommand>(); }

}  // namespace lorry::ops
