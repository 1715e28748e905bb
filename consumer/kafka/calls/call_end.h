// How a call ended, by the record of its result. Used by kafka_calls.cpp and repeatable_calls.cpp.
#pragma once

#include "consumer/call_backend.h"
#include "schema/codec.h"

namespace lorry::consumer {

CallEnd call_failed(schema::ErrorCode code, std::string message);
// Of a record of the results topic.
CallEnd call_end_of(const schema::JobRecord& record);

}  // namespace lorry::consumer
