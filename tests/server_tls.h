// For tests of TLS: a certificate made on the spot, and a client that trusts anybody.
#pragma once

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep::test {

/// A self-signed certificate and its key as PEM files, gone with this object.
class Certificate {
 public:
  explicit Certificate(const std::filesystem::path& folder) {
    const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
    const std::unique_ptr<X509, void (*)(X509*)> x509(X509_new(), X509_free);
    ASN1_INTEGER_set(X509_get_serialNumber(x509.get()), 1);
    X509_gmtime_adj(X509_getm_notBefore(x509.get()), -60);
    X509_gmtime_adj(X509_getm_notAfter(x509.get()), 3600);
    X509_set_pubkey(x509.get(), key.get());
    X509_NAME* name = X509_get_subject_name(x509.get());
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("localhost"), -1, -1,
                               0);
    X509_set_issuer_name(x509.get(), name);
    X509_sign(x509.get(), key.get(), EVP_sha256());
    const std::string stem =
        (folder / ("lockstep_tls_" + std::to_string(reinterpret_cast<std::uintptr_t>(this)))).string();
    certificate_path = stem + ".crt";
    key_path = stem + ".key";
    std::FILE* file = std::fopen(certificate_path.c_str(), "w");
    PEM_write_X509(file, x509.get());
    std::fclose(file);
    file = std::fopen(key_path.c_str(), "w");
    PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    std::fclose(file);
  }
  ~Certificate() {
    std::filesystem::remove(certificate_path);
    std::filesystem::remove(key_path);
  }
  Certificate(const Certificate&) = delete;
  Certificate& operator=(const Certificate&) = delete;

  std::string certificate_path, key_path;
};

class TlsClient {
 public:
  explicit TlsClient(int port) : context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free) {
    bio_ = BIO_new_ssl_connect(context_.get());
    BIO_set_conn_hostname(bio_, ("127.0.0.1:" + std::to_string(port)).c_str());
    is_open_ = BIO_do_connect(bio_) == 1 && BIO_do_handshake(bio_) == 1;
  }
  ~TlsClient() { close(); }
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;

  bool is_open() const { return is_open_; }
  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const int n = BIO_write(bio_, bytes.data(), static_cast<int>(bytes.size()));
      if (n <= 0) return;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  /// Everything up to a read that brings `text`.
  std::string read_until(std::string_view text) {
    std::string all;
    while (all.find(text) == std::string::npos) {
      char block[4096];
      const int n = BIO_read(bio_, block, sizeof block);
      if (n <= 0) break;
      all.append(block, static_cast<std::size_t>(n));
    }
    return all;
  }
  std::string ask(std::string_view request, std::string_view until) {
    send(request);
    return read_until(until);
  }
  void close() {
    if (bio_ != nullptr) BIO_free_all(bio_);
    bio_ = nullptr;
  }

 private:
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context_;
  BIO* bio_ = nullptr;
  bool is_open_ = false;
};

}  // namespace lockstep::test
