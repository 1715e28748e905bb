// Checks each part as it begins and ends, so that a wrong form is refused before all of it has come.
#include "ops/gateway/upload.h"

#include <fmt/format.h>

#include "ops/gateway/errors.h"
#include "schema/codec_error.h"

namespace lorry::ops {
namespace {

constexpr std::size_t field_bytes_max = 512;  // also of the file's name

}  // namespace

Upload::Upload(consumer::FileStore& store, std::string tenant, const std::string& boundary)
    : store_(store), reader_(boundary, *this), file_{.id = schema::draw_file_id(), .tenant = std::move(tenant)} {}

std::optional<std::string> Upload::on_part(const FormPart& part) {
    fault_param_ = part.name;
    if (part.name == "file") {
        if (!part.filename) return "its part 'file' is no file: it has no filename";
        if (writer_) return "it has two parts 'file': upload one file at a time";
        if (part.filename->size() > field_bytes_max) return fmt::format("the file's name has more than {} bytes", field_bytes_max);
        file_.name = *part.filename;
        writer_ = store_.create(file_.id);
        field_.reset();
        return std::nullopt;
    }
    if (part.name != "purpose") return fmt::format("its part '{}' is not supported", schema::shortened(part.name));
    if (fields_.contains(part.name)) return "it has two parts 'purpose'";
    fields_.emplace(part.name, "");
    field_ = part.name;
    return std::nullopt;
}

std::optional<std::string> Upload::on_bytes(std::string_view bytes) {
    if (!field_) {
        writer_->write(bytes);
        file_.bytes += std::ssize(bytes);
        return std::nullopt;
    }
    std::string& text = fields_[*field_];
    if (text.size() + bytes.size() > field_bytes_max) return fmt::format("its part '{}' has more than {} bytes", *field_, field_bytes_max);
    text += bytes;
    return std::nullopt;
}

std::optional<std::string> Upload::on_part_end() {
    const std::string purpose(field_ ? fields_[*field_] : schema::name_of(schema::FilePurpose::batch));
    if (purpose == schema::name_of(schema::FilePurpose::batch)) {
        fault_param_.clear();
        return std::nullopt;
    }
    return fmt::format("purpose '{}' is not supported: files are for batches, send purpose 'batch'", schema::shortened(purpose));
}

std::optional<HttpAnswer> Upload::take(std::string_view bytes) {
    fault_param_.clear();
    auto fault = reader_.take(bytes);
    if (!fault) return std::nullopt;
    writer_.reset();
    return gateway_error("invalid_upload", fmt::format("the upload was refused: {}", *fault), fault_param_);
}

Expected<schema::FileRecord, HttpAnswer> Upload::finish(schema::Seconds now) {
    const auto refuse = [](const std::string& why, const std::string& param = {}) {
        return unexpected(gateway_error("invalid_upload", fmt::format("the upload was refused: {}", why), param));
    };
    if (auto fault = reader_.finish()) return refuse(*fault);
    if (!fields_.contains("purpose")) return refuse("it has no part 'purpose': send purpose 'batch'", "purpose");
    if (!writer_) return refuse("it has no part 'file'", "file");
    if (file_.bytes == 0) return refuse("the file is empty", "file");
    writer_->keep();
    writer_.reset();
    file_.created = now;
    return file_;
}

}  // namespace lorry::ops
