// Finds the properties of a schema and the JSON types that it allows them. Used by table_rows.cpp.
#include "consumer/file/answer_columns.h"

#include <algorithm>
#include <set>
#include <string_view>

namespace lorry::consumer {
namespace {

using schema::Json;

constexpr int refs_max = 16;  // of one property, one inside the other
constexpr std::string_view any = "any";

// What "#/a/b" refers to. Names with '~' or '%' are not looked for.
const Json* referred(const Json& root, std::string_view path) {
    if (!path.starts_with("#/")) return nullptr;
    const Json* found = &root;
    for (path.remove_prefix(2); found != nullptr && !path.empty();) {
        const std::size_t end = path.find('/');
        found = found->find(path.substr(0, end));
        path.remove_prefix(end == std::string_view::npos ? path.size() : end + 1);
    }
    return found;
}

std::string type_of_value(const Json& value) {
    if (value.is_null()) return "null";
    if (value.as_bool()) return "boolean";
    if (value.as_integer()) return "integer";
    return value.as_number() ? "number" : std::string(any);
}

// The JSON types that a schema allows; {"any"}: also others, or it is not known.
std::set<std::string> types_of(const Json& schema, const Json& root, int depth = 0) {
    if (depth > refs_max) return {std::string(any)};
    if (const Json* path = schema.find("$ref"); path != nullptr && path->is_string()) {
        const Json* target = referred(root, *path->as_string());
        return target == nullptr ? std::set{std::string(any)} : types_of(*target, root, depth + 1);
    }
    if (const Json* value = schema.find("const")) return {type_of_value(*value)};
    std::set<std::string> types;
    if (const Json* values = schema.find("enum"); values != nullptr && values->is_array()) {
        for (const Json& value : *values->as_array()) types.insert(type_of_value(value));
        return types;
    }
    for (const char* keyword : {"anyOf", "oneOf"}) {
        const Json* alternatives = schema.find(keyword);
        if (alternatives == nullptr || !alternatives->is_array()) continue;
        for (const Json& alternative : *alternatives->as_array()) types.merge(types_of(alternative, root, depth + 1));
        return types;
    }
    const Json* type = schema.find("type");
    if (type != nullptr && type->is_string()) return {*type->as_string()};
    if (type == nullptr || !type->is_array()) return {std::string(any)};
    for (const Json& one : *type->as_array()) types.insert(one.is_string() ? *one.as_string() : std::string(any));
    return types;
}

}  // namespace

const Json::Object* properties_of(const Json& schema) {
    const Json* properties = schema.find("properties");
    return properties == nullptr || !properties->is_object() || properties->as_object()->empty() ? nullptr : properties->as_object();
}

std::optional<std::string> keyword_of_others(const Json& schema) {
    for (const char* keyword : {"allOf", "anyOf", "oneOf", "$ref", "patternProperties", "if"}) {
        if (schema.find(keyword) != nullptr) return keyword;
    }
    const Json* additional = schema.find("additionalProperties");
    if (additional != nullptr && additional->as_bool() != false) return "additionalProperties";
    const Json* required = schema.find("required");
    if (required == nullptr || !required->is_array()) return std::nullopt;
    const Json& properties = *schema.find("properties");
    const bool has_all = std::ranges::all_of(
        *required->as_array(), [&](const Json& name) { return !name.is_string() || properties.find(*name.as_string()) != nullptr; });
    return has_all ? std::nullopt : std::optional<std::string>("required");
}

engine::ParquetKind kind_of_property(const Json& property, const Json& root) {
    std::set<std::string> types = types_of(property, root);
    types.erase("null");
    if (types == std::set<std::string>{"boolean"}) return engine::ParquetKind::boolean;
    if (types == std::set<std::string>{"integer"}) return engine::ParquetKind::integer;
    if (types == std::set<std::string>{"number"} || types == std::set<std::string>{"integer", "number"}) return engine::ParquetKind::number;
    return engine::ParquetKind::text;
}

}  // namespace lorry::consumer
