// The interface between the gateway and what knows the API keys. Implemented by consumer/kafka/follow/key_topic.h and by fakes in tests;
// called by ops/gateway.
#pragma once

#include <memory>
#include <string_view>

#include "schema/key.h"

namespace lorry::consumer {

class KeyDirectory {
public:
    virtual ~KeyDirectory() = default;
    // The key of that id, expired and revoked ones as well; nullptr: there is none. Any thread; it must not block.
    virtual std::shared_ptr<const schema::KeyRecord> find(std::string_view id) const = 0;
    // Whether all keys are known as they were seconds ago. If not, a key that is found may have been revoked. Any thread.
    virtual bool is_current() const = 0;
};

}  // namespace lorry::consumer
