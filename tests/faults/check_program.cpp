// lorry_fault_check runs only the checker, on the topics that a fault test left. Jobs from elsewhere must be of the same kinds.
#include <iostream>

#include <fmt/format.h>

#include "tests/faults/arguments.h"
#include "tests/faults/evidence.h"

namespace lorry::faults {
namespace {

constexpr std::string_view help = R"(usage: lorry_fault_check --brokers B --prefix P --group G
Reads the committed records of the topics with that prefix, while no worker runs, and checks that every job ended exactly once and as it
must. The exit code is 1 if one did not.
)";

int run(std::span<char* const> given) {
    try {
        Arguments arguments(given);
        if (arguments.has("help")) {
            std::cout << help;
            return 0;
        }
        const consumer::KafkaConfig kafka{.brokers = arguments.text("brokers"), .passthrough = {}};
        const Evidence evidence =
            read_evidence(kafka, {arguments.text("prefix")}, arguments.text("group"), FaultRules(), std::chrono::seconds(30));
        arguments.refuse_others();
        const auto violations = check(evidence);
        for (const Violation& violation : violations) std::cout << fmt::format("{}: {}\n", name_of(violation.kind), violation.text);
        std::cerr << fmt::format("{} jobs, {} results, {} dead letters: {} violations\n", evidence.jobs.size(), evidence.results.size(),
                                 evidence.dead_letters.size(), violations.size());
        return violations.empty() ? 0 : 1;
    } catch (const UsageError& error) {
        std::cerr << error.what() << '\n' << help;
        return 2;
    } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}

}  // namespace
}  // namespace lorry::faults

int main(int count, char** arguments) { return lorry::faults::run({arguments, static_cast<std::size_t>(count)}); }
