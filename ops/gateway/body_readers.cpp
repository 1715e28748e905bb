// A queue that a few threads work on.
#include "ops/gateway/body_readers.h"

#include <fmt/format.h>

#include "schema/json.h"

namespace lorry::ops {

Expected<ReadBody, schema::JobError> read_body(const std::string& body) {
    const auto parsed = schema::Json::parse(body);
    if (parsed && parsed->is_object()) {
        const schema::Json* model = parsed->find("model");
        const std::string* name = model == nullptr ? nullptr : model->as_string();
        const schema::Json* stream = parsed->find("stream");
        return ReadBody{.text = parsed->dump(),
                        .model = name == nullptr ? std::nullopt : std::optional(*name),
                        .is_stream = stream != nullptr && stream->as_bool().value_or(false)};
    }
    const std::string what = body.empty() ? "is empty" : parsed ? fmt::format("is not an object, but {}", parsed->kind()) : parsed.error();
    return unexpected(schema::JobError{.code = schema::ErrorCode::invalid_json,
                                       .param = {},
                                       .message = fmt::format("the request's body has to be a JSON object: {}", what)});
}

BodyReaders::BodyReaders(Options options) : options_(std::move(options)) {
    for (std::size_t i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { work(); });
}

BodyReaders::~BodyReaders() {
    {
        const std::lock_guard lock(mutex_);
        is_closed_ = true;
    }
    has_tasks_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

bool BodyReaders::read(std::string body, std::function<void(Body)> done) {
    const std::lock_guard lock(mutex_);
    if (bytes_ + body.size() > options_.bytes_max) return false;
    bytes_ += body.size();
    tasks_.push_back({.body = std::move(body), .done = std::move(done)});
    has_tasks_.notify_one();
    return true;
}

void BodyReaders::work() {
    std::unique_lock lock(mutex_);
    while (true) {
        has_tasks_.wait(lock, [&] { return is_closed_ || !tasks_.empty(); });
        if (is_closed_) return;
        const Task task = std::move(tasks_.front());
        tasks_.pop_front();
        lock.unlock();
        task.done(options_.read(task.body));
        lock.lock();
        bytes_ -= task.body.size();
    }
}

}  // namespace lorry::ops
