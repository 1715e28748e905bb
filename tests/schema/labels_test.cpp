// The labels that tests declare (tests/support/labels.h): which tests get them, and that a declaration without a test is found.
#include "tests/support/labels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lorry::tests {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<Listed> listed() {
    return {{.name = "Pool.Sleeps", .file = __FILE__},
            {.name = "Op/Pool.Works/int8", .file = __FILE__},
            {.name = "Op/Pool.Works/int4", .file = __FILE__},
            {.name = "Pool.IsElsewhere", .file = "other_test.cpp"}};
}

// The names of the tests that have a label.
std::vector<std::string> labelled(const std::vector<Listed>& tests) {
    std::vector<std::string> names;
    for (const Listed& test : tests) {
        if (!test.labels.empty()) names.push_back(test.name);
    }
    return names;
}

TEST(Labels, GoToTheTestsOfTheirFileThatMatch) {
    const auto names = [](const Declaration& declaration) {
        std::vector<Listed> tests = listed();
        EXPECT_THAT(apply(declaration, tests), IsEmpty());
        return labelled(tests);
    };
    EXPECT_THAT(names({"*", {Label::slow}}), ElementsAre("Pool.Sleeps", "Op/Pool.Works/int8", "Op/Pool.Works/int4"));
    EXPECT_THAT(names({"Pool.*:*/int?:-*/int4", {Label::slow}}), ElementsAre("Pool.Sleeps", "Op/Pool.Works/int8"));
    EXPECT_THAT(names({"*/int8", {Label::slow}}), ElementsAre("Op/Pool.Works/int8"));
}

// Pins: a renamed test lost its label, or its place under the sanitizers, unnoticed.
TEST(Labels, ThatMatchNoTestOfTheirFileAreFaults) {
    const auto faults = [](const Declaration& declaration) {
        std::vector<Listed> tests = listed();
        return apply(declaration, tests);
    };
    EXPECT_THAT(faults({"Pool.Wakes", {Label::slow}}), ElementsAre(HasSubstr("'Pool.Wakes'")));
    EXPECT_THAT(faults({"Pool.IsElsewhere:Pool.*", {Label::slow}}), ElementsAre(HasSubstr("'Pool.IsElsewhere'")));
    EXPECT_THAT(faults({"Pool.*:-*/int4", {Label::slow}}), ElementsAre(HasSubstr("'*/int4'"))) << "it excludes no test of this file";
    EXPECT_THAT(faults({"", {Label::slow}}), ElementsAre(HasSubstr("without tests or labels")));
    EXPECT_THAT(faults({"*", {}}), ElementsAre(HasSubstr("without tests or labels")));
}

TEST(Labels, OfAFileWithoutTestsAreForAllTestsOfTheProgram) {
    std::vector<Listed> tests = listed();
    for (Listed& test : tests) test.file = "other_test.cpp";
    EXPECT_THAT(apply({"Pool.*", {Label::slow}}, tests), IsEmpty());
    EXPECT_THAT(labelled(tests), ElementsAre("Pool.Sleeps", "Pool.IsElsewhere"));
}

TEST(Labels, HaveNamesThatCtestReads) {
    for (const Label label : {Label::slow, Label::real_kafka, Label::one_core, Label::not_asan, Label::not_tsan, Label::on_cuda,
                              Label::asan_cuda, Label::tsan_cuda, Label::in_orders}) {
        EXPECT_EQ(label_named(name_of(label)), label) << name_of(label);
    }
    EXPECT_FALSE(label_named("slower"));
}

}  // namespace
}  // namespace lorry::tests
