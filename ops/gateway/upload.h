// One upload: reads the form as it comes and writes its file to the store. Used by stored_requests.cpp; one thread at a time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "consumer/batches/batch_backend.h"
#include "ops/gateway/multipart.h"
#include "ops/http/server.h"

namespace lorry::ops {

class Upload final : FormListener {
public:
    // content_type: with a boundary, as boundary_of() finds it. The store outlives it.
    Upload(consumer::FileStore& store, std::string tenant, const std::string& boundary);

    // The next bytes of the body. An answer refuses the upload, and nothing of it is kept. Throws as the store.
    std::optional<HttpAnswer> take(std::string_view bytes);
    // The body was complete: stores the content, whose record is not written yet.
    Expected<schema::FileRecord, HttpAnswer> finish(schema::Seconds now);

private:
    std::optional<std::string> on_part(const FormPart& part) override;
    std::optional<std::string> on_bytes(std::string_view bytes) override;
    std::optional<std::string> on_part_end() override;

    consumer::FileStore& store_;
    FormReader reader_;
    schema::FileRecord file_;
    std::unique_ptr<consumer::FileStore::Writer> writer_;  // once the file has begun
    std::optional<std::string> field_;                     // the name of the part that is no file
    std::map<std::string, std::string> fields_;
    std::string fault_param_;
};

}  // namespace lorry::ops
