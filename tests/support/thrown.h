// What went wrong, as tests compare it. Used by tests of all layers.
#pragma once

#include <stdexcept>
#include <string>

namespace lorry::tests {

// The text of the std::runtime_error that a call throws; "accepted" if it throws none.
std::string thrown_by(const auto& call) {
    try {
        call();
    } catch (const std::runtime_error& error) {
        return error.what();
    }
    return "accepted";
}

}  // namespace lorry::tests
