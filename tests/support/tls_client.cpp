// Certificates and a blocking client, with OpenSSL.
#include "tests/support/tls_client.h"

#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <array>
#include <cstdio>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "schema/deleter.h"

namespace lorry::tests {
namespace {

using Key = std::unique_ptr<EVP_PKEY, schema::Deleter<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, schema::Deleter<X509_free>>;
using File = std::unique_ptr<FILE, schema::Deleter<fclose>>;

[[noreturn]] void fail(const std::string& what) {
    const char* reason = ERR_reason_error_string(ERR_peek_last_error());
    ERR_clear_error();
    throw std::runtime_error(fmt::format("{}: {}", what, reason == nullptr ? "no reason given" : reason));
}

void require(bool done, const char* what) {
    if (!done) fail(what);
}

Key new_key() { return Key(EVP_EC_gen("P-256")); }

void add_extension(X509& certificate, int kind, const std::string& value) {
    const std::unique_ptr<X509_EXTENSION, schema::Deleter<X509_EXTENSION_free>> extension(
        X509V3_EXT_conf_nid(nullptr, nullptr, kind, value.c_str()));
    require(extension && X509_add_ext(&certificate, extension.get(), -1) == 1, "an extension");
}

struct Description {
    std::string subject;
    std::chrono::seconds begins;
    std::chrono::seconds ends;
};

// Without extensions, issuer and signature.
Certificate unsigned_certificate(const Description& description, EVP_PKEY* key) {
    Certificate made(X509_new());
    const std::unique_ptr<BIGNUM, schema::Deleter<BN_free>> number(BN_new());
    require(BN_rand(number.get(), 64, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1, "a serial number");
    BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(made.get()));
    X509_set_version(made.get(), X509_VERSION_3);
    X509_gmtime_adj(X509_getm_notBefore(made.get()), description.begins.count());
    X509_gmtime_adj(X509_getm_notAfter(made.get()), description.ends.count());
    X509_NAME_add_entry_by_txt(X509_get_subject_name(made.get()), "CN", MBSTRING_UTF8,
                               reinterpret_cast<const unsigned char*>(description.subject.c_str()), -1, -1, 0);
    require(X509_set_pubkey(made.get(), key) == 1, "the public key");
    return made;
}

void sign(X509& certificate, const X509* issuer, EVP_PKEY* key) {
    X509_set_issuer_name(&certificate, X509_get_subject_name(issuer));
    require(X509_sign(&certificate, key, EVP_sha256()) > 0, "a signature");
}

void write(const std::string& file, const X509& certificate) {
    const File out(fopen(file.c_str(), "w"));
    require(out && PEM_write_X509(out.get(), &certificate) == 1, "writing a certificate");
}

void write(const std::string& file, const EVP_PKEY* key) {
    const File out(fopen(file.c_str(), "w"));
    require(out && PEM_write_PrivateKey(out.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1, "writing a key");
    require(chmod(file.c_str(), 0600) == 0, "chmod");
}

}  // namespace

struct CertificateAuthority::State {
    std::filesystem::path folder;
    Key key = new_key();
    Certificate certificate;
};

CertificateAuthority::CertificateAuthority(const std::filesystem::path& folder)
    : state_(std::make_unique<State>(State{.folder = folder, .certificate = nullptr})) {
    using namespace std::chrono_literals;
    state_->certificate = unsigned_certificate({.subject = "A test's authority", .begins = -24h, .ends = 24h}, state_->key.get());
    add_extension(*state_->certificate, NID_basic_constraints, "critical,CA:TRUE");
    sign(*state_->certificate, state_->certificate.get(), state_->key.get());
    write(file(), *state_->certificate);
}

CertificateAuthority::~CertificateAuthority() = default;

std::string CertificateAuthority::file() const { return (state_->folder / "authority.pem").string(); }

CertificateAuthority::Identity CertificateAuthority::issue(const Wish& wish) const {
    const Key key = new_key();
    const Certificate made = unsigned_certificate({.subject = wish.host, .begins = wish.begins, .ends = wish.ends}, key.get());
    add_extension(*made, NID_subject_alt_name, "DNS:" + wish.host);
    sign(*made, state_->certificate.get(), state_->key.get());
    Identity identity{.certificate = (state_->folder / (wish.name + ".pem")).string(),
                      .key = (state_->folder / (wish.name + ".key")).string()};
    write(identity.certificate, *made);
    write(identity.key, key.get());
    return identity;
}

struct TlsClient::State {
    explicit State(int port) : socket(port) {}
    const ClientSocket socket;
    std::unique_ptr<SSL_CTX, schema::Deleter<SSL_CTX_free>> context{SSL_CTX_new(TLS_client_method())};
    std::unique_ptr<SSL, schema::Deleter<SSL_free>> tls;
};

TlsClient::TlsClient(const Options& options) : HttpConnection("localhost"), state_(std::make_unique<State>(options.port)) {
    SSL_CTX* const context = state_->context.get();
    require(SSL_CTX_load_verify_locations(context, options.trusted.c_str(), nullptr) == 1, "the authority");
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    if (!options.only_version.empty()) {
        const int version = options.only_version == "1.1" ? TLS1_1_VERSION : TLS1_2_VERSION;
        if (version < TLS1_2_VERSION) SSL_CTX_set_security_level(context, 0);
        SSL_CTX_set_min_proto_version(context, version);
        SSL_CTX_set_max_proto_version(context, version);
    }
    state_->tls.reset(SSL_new(context));
    SSL* const tls = state_->tls.get();
    if (!options.protocols.empty()) {
        SSL_set_alpn_protos(tls, reinterpret_cast<const unsigned char*>(options.protocols.data()),
                            static_cast<unsigned>(options.protocols.size()));
    }
    SSL_set1_host(tls, options.host.c_str());
    SSL_set_tlsext_host_name(tls, options.host.c_str());
    SSL_set_fd(tls, state_->socket.number());
    if (SSL_connect(tls) != 1) fail("the handshake failed");
}

TlsClient::~TlsClient() = default;

bool TlsClient::send(std::string_view bytes) {
    return SSL_write(state_->tls.get(), bytes.data(), static_cast<int>(bytes.size())) == static_cast<int>(bytes.size());
}

bool TlsClient::read_more(std::string& received) {
    std::array<char, 65536> bytes;
    const int count = SSL_read(state_->tls.get(), bytes.data(), bytes.size());
    if (count > 0) {
        received.append(bytes.data(), static_cast<std::size_t>(count));
        return true;
    }
    ended_well_ = SSL_get_error(state_->tls.get(), count) == SSL_ERROR_ZERO_RETURN;
    ERR_clear_error();
    return false;
}

void TlsClient::end_sending() { SSL_shutdown(state_->tls.get()); }

bool TlsClient::renegotiate() {
    const bool has_asked = SSL_renegotiate(state_->tls.get()) == 1;
    const bool is_done = has_asked && SSL_do_handshake(state_->tls.get()) == 1 && SSL_renegotiate_pending(state_->tls.get()) == 0;
    ERR_clear_error();
    return is_done;
}

std::string TlsClient::version() const { return SSL_get_version(state_->tls.get()); }

std::string TlsClient::serial_number() const {
    const std::unique_ptr<X509, schema::Deleter<X509_free>> certificate(SSL_get1_peer_certificate(state_->tls.get()));
    const std::unique_ptr<BIGNUM, schema::Deleter<BN_free>> number(ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate.get()), nullptr));
    char* const text = BN_bn2hex(number.get());
    std::string copy(text);
    OPENSSL_free(text);
    return copy;
}

}  // namespace lorry::tests
