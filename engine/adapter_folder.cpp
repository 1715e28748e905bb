// Joins what weights and texts of an adapter's folder say.
#include "engine/adapter_folder.h"

#include <utility>

namespace lorry::engine {

Expected<AdapterInfo, std::string> inspect_adapter(const std::filesystem::path& folder, const ModelConfig& config,
                                                   const ModelTexts& texts) {
    const auto text = texts.of(folder);
    if (!text) return unexpected(text.error());
    if (*text == nullptr) return inspect_adapter(folder, config);
    auto info = inspect_adapter(folder, config, (*text)->hash);
    if (info) info->text_difference = (*text)->difference;
    return info;
}

Expected<std::unique_ptr<AdapterFiles>, AdapterError> read_adapter(const std::filesystem::path& folder, const std::string& expected_hash,
                                                                   const Model& model, const ModelTexts& texts) {
    const auto text = texts.of(folder);
    if (!text) return unexpected(AdapterError{text.error(), true});
    return AdapterFiles::read(folder, expected_hash, model, *text == nullptr ? "" : (*text)->hash);
}

}  // namespace lorry::engine
