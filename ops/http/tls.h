// The certificate and key by which a server proves who it is, from two files that may be replaced while it runs. Made by `lorry serve`,
// used by client_stream.h.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "schema/file_version.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace lorry::ops {

struct TlsFiles {
    std::string certificate;  // PEM: the server's own first, then those up to one that clients know
    std::string key;          // PEM, not encrypted
};

// Any thread.
class TlsIdentity {
public:
    struct FreeContext {
        void operator()(ssl_ctx_st* context) const;
    };
    using Context = std::unique_ptr<ssl_ctx_st, FreeContext>;

    // Throws std::runtime_error if a file cannot be read, may be read by every user of the machine (the key), or is changed by others; if
    // the two do not belong together; or if the certificate is not valid today.
    explicit TlsIdentity(TlsFiles files);

    // Reads the files again if they have changed since. True if new connections get another certificate from now on. Throws as the
    // constructor does, once for each change; the former certificate then stays.
    bool refresh();
    std::chrono::system_clock::time_point expires() const;
    // For a new connection.
    Context context() const;

private:
    using Versions = std::array<std::optional<schema::FileVersion>, 2>;
    Versions versions() const;
    void load();

    const TlsFiles files_;
    mutable std::mutex mutex_;
    // Guarded by mutex_.
    Versions read_;
    Context context_;
    std::chrono::system_clock::time_point expires_{};
};

}  // namespace lorry::ops
