// What ctest must know about a test, declared beside the test. tests/support/main.cpp lists each program's tests with their labels when
// ctest starts, and tests/listed_tests.cmake turns the labels into properties. A declaration that matches no test is an error there, so a
// renamed test cannot lose its labels unnoticed.
#pragma once

#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

namespace lorry::tests {

enum class Label {
    slow,        // may run for ten minutes instead of two; ops/test --quick and the sanitizers leave it out
    real_kafka,  // needs the broker that ctest starts; otherwise like slow
    one_core,    // keeps a core busy, in a layer whose other tests mostly wait (consumer, ops)
    not_asan,    // not under the address sanitizer
    not_tsan,    // not under the thread sanitizer
    on_cuda,     // runs a second time on the emulated GPU
    asan_cuda,   // runs a second time on the emulated GPU, under the address sanitizer
    tsan_cuda,   // runs on the emulated GPU under the thread sanitizer
    in_orders,   // runs again with the emulated GPU's threads in each of the fixed orders
};
std::string_view name_of(Label label);
std::optional<Label> label_named(std::string_view name);

// A test as gtest knows it.
struct Listed {
    std::string name;  // "Suite.Test", with the parts that INSTANTIATE_TEST_SUITE_P adds
    std::string file;
    std::vector<Label> labels = {};
};

// Labels for the tests that the patterns match. Patterns are written as for --gtest_filter: with "*" and "?", joined by ":"; those after a
// "-" exclude tests. They match tests of the declaring file; if that file has no tests, they match all tests of the program.
struct Declaration {
    std::string patterns;
    std::vector<Label> labels;
    std::source_location place = std::source_location::current();
};
// Adds the labels to the tests that match. Returns what is wrong with the declaration, such as each pattern that matches no test.
std::vector<std::string> apply(const Declaration& declaration, std::vector<Listed>& tests);

// Makes a declaration for list_tests(), at namespace scope in the file of the tests:
//   const tests::Labelled kills{"RunProgram.RepeatsAndLosesNothing*", {tests::Label::slow}};
class Labelled {
public:
    Labelled(std::string patterns, std::vector<Label> labels, std::source_location place = std::source_location::current());
};

// The tests of this program with the labels declared for them, and what is wrong with the declarations.
struct Listing {
    std::vector<Listed> tests;
    std::vector<std::string> faults;
};
Listing list_tests();

}  // namespace lorry::tests
