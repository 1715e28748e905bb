// Passes texts to spdlog: the only file of this layer that includes it.
#include "consumer/log.h"

#include <spdlog/spdlog.h>

namespace lorry::consumer {

void log_text(LogLevel level, std::string_view text) {
    constexpr spdlog::level::level_enum levels[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn, spdlog::level::err};
    spdlog::log(levels[static_cast<std::size_t>(level)], text);
}

}  // namespace lorry::consumer
