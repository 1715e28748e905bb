// Sets OpenSSL up for a server, and checks the files first.
#include "ops/http/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <string_view>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "schema/check.h"

namespace lorry::ops {
namespace {

// What all clients of the last ten years have: a key for each connection that nobody learns later, and ciphers that authenticate. TLS 1.3
// has no others.
constexpr const char* ciphers_of_1_2 = "ECDHE+AESGCM:ECDHE+CHACHA20";
constexpr std::string_view http_1_1 = "\x08http/1.1";  // as ALPN writes it

std::string last_error() {
    const unsigned long code = ERR_peek_last_error();
    ERR_clear_error();
    const char* reason = ERR_reason_error_string(code);
    return reason == nullptr ? "OpenSSL gives no reason" : reason;
}

[[noreturn]] void refuse(const std::string& file, const std::string& why) { throw std::runtime_error(fmt::format("{}: {}", file, why)); }

void check_file(const std::string& file, const char* what) {
    struct stat facts {};
    if (stat(file.c_str(), &facts) != 0) refuse(file, fmt::format("{} cannot be read: {}", what, std::strerror(errno)));
    if (!S_ISREG(facts.st_mode)) refuse(file, fmt::format("{} has to be a regular file", what));
    if ((facts.st_mode & S_IWOTH) != 0) refuse(file, fmt::format("every user may change {}: run chmod o-w", what));
}

void check_key_file(const std::string& file) {
    check_file(file, "the key");
    if (schema::every_user_may_read(file))
        refuse(file, "every user may read the key: run chmod o-r (a secret in Kubernetes: defaultMode 0440)");
}

std::chrono::system_clock::time_point time_of(const ASN1_TIME* time) {
    std::tm parts{};
    CHECK(ASN1_TIME_to_tm(time, &parts) == 1, "a certificate that was read has times");
    return std::chrono::system_clock::from_time_t(timegm(&parts));
}

// The only protocol that is spoken; clients that ask for others alone are refused.
int choose_protocol(SSL*, const unsigned char** chosen, unsigned char* bytes, const unsigned char* offered, unsigned int offered_bytes,
                    void*) {
    unsigned char* place = nullptr;
    const auto* ours = reinterpret_cast<const unsigned char*>(http_1_1.data());
    const int found = SSL_select_next_proto(&place, bytes, ours, http_1_1.size(), offered, offered_bytes);
    *chosen = place;
    return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

TlsIdentity::Context new_context() {
    TlsIdentity::Context context(SSL_CTX_new(TLS_server_method()));
    CHECK(context != nullptr, "OpenSSL makes contexts");
    SSL_CTX* const tls = context.get();
    CHECK(SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION) == 1 && SSL_CTX_set_cipher_list(tls, ciphers_of_1_2) == 1,
          "OpenSSL has TLS 1.2 and its ciphers");
    // A client may not make the server compute a second handshake. Sessions are not kept: the key of tickets would live as long as the
    // certificate, and whoever got it could read what was sent with TLS 1.2 before.
    SSL_CTX_set_options(tls, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_NO_TICKET);
    CHECK(SSL_CTX_set_num_tickets(tls, 0) == 1, "OpenSSL sends as many tickets as it is told");
    SSL_CTX_set_session_cache_mode(tls, SSL_SESS_CACHE_OFF);
    // Idle connections hold no buffers.
    SSL_CTX_set_mode(tls, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_alpn_select_cb(tls, choose_protocol, nullptr);
    // Otherwise OpenSSL asks for the password of an encrypted key on the terminal.
    SSL_CTX_set_default_passwd_cb(tls, [](char*, int, int, void*) { return 0; });
    return context;
}

}  // namespace

void TlsIdentity::FreeContext::operator()(ssl_ctx_st* context) const { SSL_CTX_free(context); }

TlsIdentity::TlsIdentity(TlsFiles files) : files_(std::move(files)), read_(versions()) { load(); }

TlsIdentity::Versions TlsIdentity::versions() const { return {schema::version_of(files_.certificate), schema::version_of(files_.key)}; }

void TlsIdentity::load() {
    check_file(files_.certificate, "the certificate");
    check_key_file(files_.key);
    Context context = new_context();
    if (SSL_CTX_use_certificate_chain_file(context.get(), files_.certificate.c_str()) != 1)
        refuse(files_.certificate, fmt::format("this is no certificate in PEM format: {}", last_error()));
    if (SSL_CTX_use_PrivateKey_file(context.get(), files_.key.c_str(), SSL_FILETYPE_PEM) != 1) {
        const std::string why = last_error();
        const bool differs = why.find("mismatch") != std::string::npos;
        refuse(files_.key, differs ? fmt::format("the key does not belong to the certificate {}", files_.certificate)
                                   : fmt::format("this is no key in PEM format without a password: {}", why));
    }
    if (SSL_CTX_check_private_key(context.get()) != 1)
        refuse(files_.key, fmt::format("the key does not belong to the certificate {}", files_.certificate));
    const X509* certificate = SSL_CTX_get0_certificate(context.get());
    const auto begins = time_of(X509_get0_notBefore(certificate));
    const auto expires = time_of(X509_get0_notAfter(certificate));
    const auto now = std::chrono::system_clock::now();
    if (expires <= now)
        refuse(files_.certificate, fmt::format("the certificate expired on {:%Y-%m-%d %H:%M:%S} UTC: renew it", fmt::gmtime(expires)));
    if (begins > now)
        refuse(files_.certificate, fmt::format("the certificate is valid only from {:%Y-%m-%d %H:%M:%S} UTC on", fmt::gmtime(begins)));
    context_ = std::move(context);
    expires_ = expires;
}

bool TlsIdentity::refresh() {
    // Taken before the files are read, so that a change in between is seen the next time.
    const Versions now = versions();
    const std::scoped_lock lock(mutex_);
    if (now == read_) return false;
    read_ = now;
    load();
    return true;
}

std::chrono::system_clock::time_point TlsIdentity::expires() const {
    const std::scoped_lock lock(mutex_);
    return expires_;
}

TlsIdentity::Context TlsIdentity::context() const {
    const std::scoped_lock lock(mutex_);
    SSL_CTX_up_ref(context_.get());
    return Context(context_.get());
}

}  // namespace lorry::ops
