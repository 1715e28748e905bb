// What the commands that talk to Kafka make of their settings.
#pragma once

#include <string>

#include "consumer/kafka/config.h"
#include "ops/settings.h"
#include "schema/job.h"
#include "schema/store.h"
#include "schema/topics.h"

namespace CLI {
class App;
}

namespace lorry::ops {

// Throws consumer::KafkaConfigError (exit code 2) when no brokers are given or the [kafka] table is refused.
consumer::KafkaConfig kafka_config_of(const Settings& settings);
schema::Topics topics_of(const Settings& settings);
// The workers' consumer group: the setting, or prefix and base model. Throws UsageError when neither a group nor a model is given.
std::string group_of(const Settings& settings);

// Where the ledger lies: the setting, or PREFIX.sqlite in the working folder.
std::string ledger_file_of(const Settings& settings);
// It, to read. Throws UsageError when there is none.
schema::Store open_ledger(const Settings& settings);

// The flags among --config, --brokers and --prefix that a call was given, each with a space before it: for the next command that it
// tells its user to type.
std::string repeated_flags(const CLI::App& app);

schema::Timestamp now();

}  // namespace lorry::ops
