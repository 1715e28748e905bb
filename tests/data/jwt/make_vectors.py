#!/usr/bin/env python3
# Makes vectors.json: tokens of another library (PyJWT 2.10.1 with cryptography), good and bad, and the public keys that verify them. For
# tests/ops/gateway/jwt_test.cpp. The private keys are thrown away, so each run makes other tokens.
#
#   python3 -m venv /tmp/jwt && /tmp/jwt/bin/pip install PyJWT==2.10.1 cryptography
#   /tmp/jwt/bin/python tests/data/jwt/make_vectors.py > tests/data/jwt/vectors.json
import base64
import hashlib
import hmac
import json
import secrets

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

NOW = 1_800_000_000  # the time that the test gives
GOOD = {"iss": "https://issuer.example", "aud": "lorry", "sub": "ada", "exp": NOW + 600, "iat": NOW - 10}

TWO_ALGORITHMS = b'{"alg":"none","alg":"RS256","kid":"rsa"}'

rsa_key = rsa.generate_private_key(65537, 2048)
other_rsa_key = rsa.generate_private_key(65537, 2048)
ec_key = ec.generate_private_key(ec.SECP256R1())
secret = secrets.token_bytes(32)


def encoded(value):
    return base64.urlsafe_b64encode(value if isinstance(value, bytes) else json.dumps(value).encode()).rstrip(b"=").decode()


def public(algorithm, key, kid):
    return json.loads(algorithm.to_jwk(key)) | {"kid": kid, "use": "sig"}


def by_hand(header, claims, key):
    text = f"{encoded(header)}.{encoded(claims)}"
    return f"{text}.{encoded(hmac.new(key, text.encode(), hashlib.sha256).digest())}"


keys = [
    public(jwt.algorithms.RSAAlgorithm, rsa_key.public_key(), "rsa") | {"alg": "RS256"},
    public(jwt.algorithms.ECAlgorithm, ec_key.public_key(), "ec"),
    {"kty": "oct", "k": encoded(secret), "kid": "secret", "alg": "HS256"},
    {"kty": "RSA", "kid": "encryption", "use": "enc", "n": "AQ", "e": "AQAB"},
]
pem = rsa_key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def rs256(claims, kid="rsa", key=rsa_key, **header):
    return jwt.encode(claims, key, "RS256", headers={"kid": kid, **header})


without = lambda name: {key: value for key, value in GOOD.items() if key != name}  # noqa: E731
tokens = {
    "RS256": rs256(GOOD),
    "ES256": jwt.encode(GOOD, ec_key, "ES256", headers={"kid": "ec"}),
    "HS256": jwt.encode(GOOD, secret, "HS256", headers={"kid": "secret"}),
    "for long": rs256(without("iat") | {"exp": 4_102_444_800, "scope": "openid lorry:model:base"}),
    "several audiences": rs256(GOOD | {"aud": ["other", "lorry"]}),
    "expired within the leeway": rs256(GOOD | {"exp": NOW - 30}),
    "real times": rs256(GOOD | {"exp": NOW + 0.5}),
    "expired": rs256(GOOD | {"exp": NOW - 61}),
    "no expiry": rs256(without("exp")),
    "expiry is text": by_hand({"alg": "HS256", "kid": "secret"}, GOOD | {"exp": "tomorrow"}, secret),
    "not yet": rs256(GOOD | {"nbf": NOW + 61}),
    "made in the future": rs256(GOOD | {"iat": NOW + 61}),
    "wrong audience": rs256(GOOD | {"aud": "other"}),
    "no audience": rs256(without("aud")),
    "wrong issuer": rs256(GOOD | {"iss": "https://issuer.example.evil"}),
    "no issuer": rs256(without("iss")),
    "unknown key": rs256(GOOD, kid="rotated"),
    "no key named": jwt.encode(GOOD, rsa_key, "RS256"),
    "a key for encryption": rs256(GOOD, kid="encryption"),
    "another's signature": rs256(GOOD, key=other_rsa_key),
    "another algorithm of the key": jwt.encode(GOOD, rsa_key, "RS512", headers={"kid": "rsa"}),
    "HS256 with the public key as the secret": by_hand({"alg": "HS256", "kid": "rsa"}, GOOD, pem),
    "HS256 with the modulus as the secret": by_hand({"alg": "HS256", "kid": "rsa"}, GOOD, base64.urlsafe_b64decode(keys[0]["n"] + "==")),
    "alg none": f'{encoded({"alg": "none", "kid": "rsa"})}.{encoded(GOOD)}.',
    "alg none with a signature": f'{encoded({"alg": "none", "kid": "rsa"})}.{encoded(GOOD)}.AAAA',
    "alg NONE": f'{encoded({"alg": "NONE", "kid": "rsa"})}.{encoded(GOOD)}.AAAA',
    "two algorithms": f"{encoded(TWO_ALGORITHMS)}.{encoded(GOOD)}.AAAA",
    "extensions": rs256(GOOD, crit=["x"], x=1),
    "a key in the header": rs256(GOOD, kid="mine", key=other_rsa_key, jwk=public(jwt.algorithms.RSAAlgorithm, other_rsa_key.public_key(), "mine")),
    "claims are a list": by_hand({"alg": "HS256", "kid": "secret"}, [1], secret),
    "claims are no JSON": by_hand({"alg": "HS256", "kid": "secret"}, b"hello", secret),
}
print(json.dumps({"now": NOW, "keys": {"keys": keys}, "tokens": tokens}, indent=1))
