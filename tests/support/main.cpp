// The main program of the tests: gtest's, with one addition for tests/listed_tests.cmake, which runs it when ctest starts:
//   test_LAYER --list-for-ctest [--with LABEL] [--without LABEL]...   prints listed_test(NAME LABEL...) for each test to add
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <span>

#include "tests/support/labels.h"

namespace lorry::tests {

namespace {

// The tests that one run of the program takes.
struct Choice {
    std::vector<Label> with;
    std::vector<Label> without;

    bool takes(const Listed& test) const {
        const auto has = [&](Label label) { return std::ranges::find(test.labels, label) != test.labels.end(); };
        return std::ranges::all_of(with, has) && std::ranges::none_of(without, has);
    }
};

int fail(const std::vector<std::string>& faults) {
    for (const std::string& fault : faults) std::cerr << fault << '\n';
    return 1;
}

int list_for_ctest(std::span<char*> arguments) {
    Choice choice;
    for (std::size_t at = 0; at + 1 < arguments.size(); at += 2) {
        const std::string_view option = arguments[at];
        const std::optional<Label> label = label_named(arguments[at + 1]);
        if (!label || (option != "--with" && option != "--without")) return fail({fmt::format("{} {}?", option, arguments[at + 1])});
        (option == "--with" ? choice.with : choice.without).push_back(*label);
    }
    const Listing listing = list_tests();
    if (!listing.faults.empty()) return fail(listing.faults);
    std::size_t count = 0;
    for (const Listed& test : listing.tests) {
        if (!choice.takes(test)) continue;
        std::string labels;
        for (const Label label : test.labels) labels += fmt::format(" {}", name_of(label));
        std::cout << fmt::format("listed_test([==[{}]==]{})\n", test.name, labels);
        ++count;
    }
    return count > 0 ? 0 : fail({"no test has the labels that this run takes"});
}

}  // namespace

}  // namespace lorry::tests

int main(int count, char** arguments) {
    ::testing::InitGoogleTest(&count, arguments);
    const std::span<char*> given(arguments, static_cast<std::size_t>(count));
    if (given.size() > 1 && given[1] == std::string_view("--list-for-ctest")) return lorry::tests::list_for_ctest(given.subspan(2));
    return RUN_ALL_TESTS();
}
