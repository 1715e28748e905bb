// Mistakes that can be planted into the simulation, to show that it finds them. Each stands for a mistake that the program could have. It
// is made where the program meets its client, or where its stages meet; all else runs as always. Used by rdkafka*.cpp and worker.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

namespace lorry::simulation {

enum class Plant : std::uint8_t {
    none,
    offsets_of_old_generations,   // offsets are sent as the group's current generation, whatever this worker's was
    offsets_beyond_unfinished,    // a commit's offset is one too high
    undecided_offsets,            // a takeover reads offsets that an open transaction may change
    results_unread,               // a takeover does not see the last record of each partition of results
    aborted_results_count,        // a takeover counts results of aborted transactions
    unknown_end_is_abort,         // a commit without an answer counts as aborted
    refused_end_is_commit,        // a commit that was refused counts as done
    stray_requests_unnoticed,     // a request whose connection broke counts as answered
    loss_unnoticed,               // jobs of partitions that were lost run on, under the epoch of their next assignment
    results_outside_transaction,  // results are visible before their transaction is committed
    old_assignment_kept,          // a member that comes back keeps its old assignment, without a rebalance that follows
    result_dropped,               // the end of one job in a hundred is not published
};

inline constexpr std::array plants = {
    std::pair{Plant::offsets_of_old_generations, std::string_view("offsets_of_old_generations")},
    std::pair{Plant::offsets_beyond_unfinished, std::string_view("offsets_beyond_unfinished")},
    std::pair{Plant::undecided_offsets, std::string_view("undecided_offsets")},
    std::pair{Plant::results_unread, std::string_view("results_unread")},
    std::pair{Plant::aborted_results_count, std::string_view("aborted_results_count")},
    std::pair{Plant::unknown_end_is_abort, std::string_view("unknown_end_is_abort")},
    std::pair{Plant::refused_end_is_commit, std::string_view("refused_end_is_commit")},
    std::pair{Plant::stray_requests_unnoticed, std::string_view("stray_requests_unnoticed")},
    std::pair{Plant::loss_unnoticed, std::string_view("loss_unnoticed")},
    std::pair{Plant::results_outside_transaction, std::string_view("results_outside_transaction")},
    std::pair{Plant::old_assignment_kept, std::string_view("old_assignment_kept")},
    std::pair{Plant::result_dropped, std::string_view("result_dropped")},
};

}  // namespace lorry::simulation
