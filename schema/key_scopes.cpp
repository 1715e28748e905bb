// One word group for each right.
#include "schema/key_scopes.h"

#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lorry::schema {

std::string show_scopes(const KeyScopes& scopes) {
    std::vector<std::string> words;
    if (!scopes.models) {
        words.emplace_back("shared models");
    } else if (allows_all_models(scopes)) {
        words.emplace_back("all models");
    } else {
        words.push_back(fmt::format("models {}", fmt::join(*scopes.models, ",")));
    }
    if (scopes.endpoints) {
        std::vector<std::string> urls;
        for (const Endpoint endpoint : *scopes.endpoints) urls.emplace_back(row_of(endpoint).url);
        words.push_back(fmt::format("urls {}", fmt::join(urls, ",")));
    }
    if (scopes.batches) words.emplace_back("batches");
    if (scopes.admin) words.emplace_back("admin");
    return fmt::format("{}", fmt::join(words, "; "));
}

}  // namespace lorry::schema
