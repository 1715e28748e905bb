// Reads to the end that the topic has when it is asked for.
#include "ops/client/compacted_topic.h"

#include <fmt/format.h>

#include "consumer/kafka/reader.h"
#include "consumer/seams.h"
#include "ops/kafka_settings.h"
#include "ops/units.h"

namespace lorry::ops {

std::map<std::string, std::string> read_compacted(const Settings& settings, const std::string& topic) {
    const consumer::KafkaConfig kafka = kafka_config_of(settings);
    consumer::RecordReader reader(kafka, {.topics = {topic}});
    consumer::CatchUp catch_up(reader);
    std::map<std::string, std::string> values;
    const auto deadline = consumer::Clock::now() + kafka.deadline_start;
    do {
        for (schema::JobRecord& record : reader.poll()) {
            if (!record.key) continue;
            if (record.value) {
                values[*record.key] = *std::move(record.value);
            } else {
                values.erase(*record.key);
            }
        }
        if (consumer::Clock::now() > deadline) {
            throw consumer::KafkaError(fmt::format("{} could not be read to its end within {}: check the brokers at {}", topic,
                                                   show_duration(kafka.deadline_start), kafka.brokers));
        }
    } while (!catch_up.is_done());
    return values;
}

}  // namespace lorry::ops
