// Turns settings into what consumer/kafka takes. Used by `worker` and by the commands in ops/client that talk to Kafka or read the ledger.
#pragma once

#include <string>

#include "consumer/kafka/config.h"
#include "ops/settings.h"
#include "schema/job.h"
#include "schema/store/store.h"
#include "schema/topics.h"

namespace CLI {
class App;
}

namespace lorry::ops {

// Replaces ${env:NAME} and ${file:PATH} in values of the [kafka] table, so that secrets need not be in command lines and lorry.toml. Throws
// UsageError for a reference that cannot be replaced, consumer::KafkaConfigError (exit code 2, too) when no brokers are given or the table
// is refused.
consumer::KafkaConfig kafka_config_of(const Settings& settings);
schema::Topics topics_of(const Settings& settings);
// The workers' consumer group: the setting, or prefix and base model. Throws UsageError when neither a group nor a model is given.
std::string group_of(const Settings& settings);

// The ledger's file: the setting, or PREFIX.sqlite in the working folder.
std::string ledger_file_of(const Settings& settings);
// Opens the ledger for reading. Throws UsageError when the file does not exist.
schema::Store open_ledger(const Settings& settings);

// Those of --config, --brokers and --prefix that were given, each with a space before it. Commands repeat them in command lines that they
// suggest to the user.
std::string repeated_flags(const CLI::App& app);

schema::Timestamp now();

}  // namespace lorry::ops
