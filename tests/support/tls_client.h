// A certificate authority of a test's own, and a client that trusts it. Used by tests of ops/http and `lorry serve`.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tests/support/http_client.h"

namespace lorry::tests {

// Writes files in PEM format to a folder.
class CertificateAuthority {
public:
    explicit CertificateAuthority(const std::filesystem::path& folder);
    ~CertificateAuthority();

    struct Identity {
        std::string certificate;  // files
        std::string key;          // mode 0600
    };
    struct Wish {
        std::string name;  // of the files, without their endings
        std::string host = "localhost";
        std::chrono::seconds begins{-60};  // from now
        std::chrono::seconds ends{3600};
    };
    Identity issue(const Wish& wish) const;
    // The authority's own certificate.
    std::string file() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

// A connection with TLS to a server on 127.0.0.1. Throws std::runtime_error, with OpenSSL's reason, if the handshake fails.
class TlsClient final : public HttpConnection {
public:
    struct Options {
        int port = 0;
        std::string trusted;             // the authority's file
        std::string host = "localhost";  // has to be in the certificate
        std::string only_version = {};   // that it offers: "1.1" or "1.2"; empty: all
        std::string protocols = {};      // of ALPN, as they are sent; empty: none are offered
    };
    explicit TlsClient(const Options& options);
    ~TlsClient() override;

    bool send(std::string_view bytes) override;
    // Whether the server had said so, as TLS demands, and not only closed the connection.
    bool ended_well() const { return ended_well_; }
    // Says that nothing more will be sent, but keeps the connection.
    void end_sending();
    // Asks for another handshake within the connection, as TLS 1.2 allows. True: the server went along.
    bool renegotiate();

    std::string version() const;        // "TLSv1.3"
    std::string serial_number() const;  // of the server's certificate

private:
    bool read_more(std::string& received) override;

    struct State;
    std::unique_ptr<State> state_;
    bool ended_well_ = false;
};

}  // namespace lorry::tests
