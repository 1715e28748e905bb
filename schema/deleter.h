// Owners of C handles. Used by consumer/kafka/handles.h, ops/gateway/jwt.cpp and tests.
#pragma once

namespace lorry::schema {

// For std::unique_ptr: frees with a function of a C library.
template <auto function>
struct Deleter {
    template <typename Handle>
    void operator()(Handle* handle) const {
        function(handle);
    }
};

}  // namespace lorry::schema
