"""A small OpenID provider: its configuration and its keys over HTTP, and tokens signed with them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

AUDIENCE = "legato"


class Provider:
    """Signs tokens with the key that it made last, and publishes all that it has."""

    def __init__(self) -> None:
        self._keys: dict[str, rsa.RSAPrivateKey] = {}
        self.fetches = 0
        self.down = False
        self.keys_at = ""
        """Where it says that its keys are."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                document = provider._documents().get(self.path)
                self.send_response(503 if provider.down or document is None else 200)
                self.end_headers()
                if document is not None and not provider.down:
                    self.wfile.write(json.dumps(document).encode())

            def log_message(self, format: str, *args: Any) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.rotate("first")
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _documents(self) -> dict[str, Any]:
        self.fetches += 1
        keys = []
        for name, key in self._keys.items():
            public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
            keys.append(public | {"kid": name, "use": "sig", "alg": "RS256"})
        return {
            "/.well-known/openid-configuration": {
                "issuer": self.issuer,
                "jwks_uri": self.keys_at or f"{self.issuer}/keys",
            },
            "/keys": {"keys": keys},
        }

    def rotate(self, name: str, *, withdraw: bool = False) -> None:
        """Sign with a new key; the others are published still, unless they are withdrawn."""
        if withdraw:
            self._keys.clear()
        self._keys[name] = rsa.generate_private_key(65537, 2048)

    def token(self, user: str = "ann", *, lasts_s: float = 600, key: Any = None, **claims: Any) -> str:
        """A token; `claims` take the place of the usual ones."""
        name = list(self._keys)[-1]
        content = {"iss": self.issuer, "aud": AUDIENCE, "sub": user, "exp": time.time() + lasts_s} | claims
        return jwt.encode(
            {claim: value for claim, value in content.items() if value is not None},
            key or self._keys[name],
            algorithm="RS256",
            headers={"kid": name},
        )

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def openid_provider() -> Iterator[Provider]:
    provider = Provider()
    try:
        yield provider
    finally:
        provider.close()
