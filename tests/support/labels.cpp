// Matches declarations of labels with the tests that gtest has registered; see labels.h.
#include "tests/support/labels.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>

namespace lorry::tests {

namespace {

// A switch, so that a label without a name does not compile (-Wswitch). nullopt: not an enumerator.
constexpr std::optional<std::string_view> find_name(Label label) {
    switch (label) {
        case Label::slow: return "slow";
        case Label::real_kafka: return "real_kafka";
        case Label::one_core: return "one_core";
        case Label::not_asan: return "not_asan";
        case Label::not_tsan: return "not_tsan";
        case Label::on_cuda: return "on_cuda";
        case Label::asan_cuda: return "asan_cuda";
        case Label::tsan_cuda: return "tsan_cuda";
        case Label::in_orders: return "in_orders";
    }
    return std::nullopt;
}

// Filled while the program's static objects are made, as gtest's own registry is.
std::vector<Declaration>& declarations() {
    static std::vector<Declaration> all;
    return all;
}

bool matches(std::string_view pattern, std::string_view name) {
    if (pattern.empty()) return name.empty();
    if (pattern.front() == '*') return matches(pattern.substr(1), name) || (!name.empty() && matches(pattern, name.substr(1)));
    return !name.empty() && (pattern.front() == '?' || pattern.front() == name.front()) && matches(pattern.substr(1), name.substr(1));
}

std::vector<std::string> split(std::string_view patterns) {
    std::vector<std::string> parts;
    while (!patterns.empty()) {
        const std::size_t end = std::min(patterns.find(':'), patterns.size());
        parts.emplace_back(patterns.substr(0, end));
        patterns.remove_prefix(std::min(end + 1, patterns.size()));
    }
    return parts;
}

}  // namespace

std::string_view name_of(Label label) { return *find_name(label); }

std::optional<Label> label_named(std::string_view name) {
    for (int number = 0;; ++number) {
        const auto label = static_cast<Label>(number);
        const auto known = find_name(label);
        if (!known) return std::nullopt;
        if (*known == name) return label;
    }
}

std::vector<std::string> apply(const Declaration& declaration, std::vector<Listed>& tests) {
    const std::string_view patterns = declaration.patterns;
    const std::size_t dash = std::min(patterns.find('-'), patterns.size());
    const std::vector<std::string> wanted = split(patterns.substr(0, dash));
    const std::vector<std::string> left_out = split(patterns.substr(std::min(dash + 1, patterns.size())));
    const std::string_view file = declaration.place.file_name();
    const auto is_here = [&](const Listed& test) { return test.file == file; };
    const bool anywhere = std::ranges::none_of(tests, is_here);
    const auto has_any = [](const std::vector<std::string>& any, const Listed& test) {
        return std::ranges::any_of(any, [&](const std::string& pattern) { return matches(pattern, test.name); });
    };
    std::vector<Listed*> named;
    for (Listed& test : tests) {
        if ((anywhere || is_here(test)) && has_any(wanted, test)) named.push_back(&test);
    }
    std::vector<std::string> faults;
    const auto complain = [&](std::string_view what) { faults.push_back(fmt::format("{}:{}: {}", file, declaration.place.line(), what)); };
    for (const auto* list : {&wanted, &left_out}) {
        for (const std::string& pattern : *list) {
            const bool is_used = std::ranges::any_of(named, [&](const Listed* test) { return matches(pattern, test->name); });
            if (!is_used) complain(fmt::format("a label for '{}', which matches no test of this file", pattern));
        }
    }
    if (wanted.empty() || declaration.labels.empty()) complain("a declaration without tests or labels");
    for (Listed* test : named) {
        if (!has_any(left_out, *test)) test->labels.insert(test->labels.end(), declaration.labels.begin(), declaration.labels.end());
    }
    return faults;
}

Labelled::Labelled(std::string patterns, std::vector<Label> labels, std::source_location place) {
    declarations().push_back({.patterns = std::move(patterns), .labels = std::move(labels), .place = place});
}

Listing list_tests() {
    Listing listing;
    const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
    for (int suite = 0; suite < all.total_test_suite_count(); ++suite) {
        const ::testing::TestSuite& tests = *all.GetTestSuite(suite);
        for (int test = 0; test < tests.total_test_count(); ++test) {
            const ::testing::TestInfo& info = *tests.GetTestInfo(test);
            listing.tests.push_back({.name = fmt::format("{}.{}", info.test_suite_name(), info.name()), .file = info.file()});
        }
    }
    for (const Declaration& declaration : declarations()) {
        for (std::string& fault : apply(declaration, listing.tests)) listing.faults.push_back(std::move(fault));
    }
    return listing;
}

}  // namespace lorry::tests
