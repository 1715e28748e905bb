// What is answered about files and batches. Used by stored_requests.cpp, on threads that may block. All throw as the backend.
#pragma once

#include <string>

#include "consumer/batches/batch_backend.h"
#include "ops/gateway/authenticator.h"
#include "ops/gateway/route.h"
#include "ops/http/server.h"

namespace lorry::ops {

HttpAnswer file_not_found(const std::string& id);
// All actions but uploads and contents.
HttpAnswer answer_about_files(consumer::BatchBackend& backend, consumer::FileStore& store, const Caller& caller, const FileRoute& route);
// `now` in seconds since 1970.
HttpAnswer answer_about_batches(consumer::BatchBackend& backend, const Caller& caller, const BatchRoute& route, const std::string& body,
                                schema::Seconds now);

}  // namespace lorry::ops
