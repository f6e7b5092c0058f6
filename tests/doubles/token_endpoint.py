"""A token endpoint on the loopback address. Its tokens are unsigned JWTs, which brokers accept by default."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs


@dataclass
class Endpoint:
    """The endpoint's answers, which a test may change, and the requests that it got."""

    url: str = ""
    lifetime: float = 3600
    answer: tuple[int, bytes] | None = None
    """The status and body of every answer; None: answer with a token."""
    asked: list[tuple[str, str, dict[str, list[str]]]] = field(default_factory=list)
    """The path, the client id and secret, and the fields of each request."""

    def token(self, user: str) -> bytes:
        now = time.time()
        claims = {"sub": user, "iat": now, "exp": now + self.lifetime}
        parts = (
            base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=")
            for one in ({"alg": "none"}, claims)
        )
        return b".".join((*parts, b""))


@contextmanager
def token_endpoint(tls: ssl.SSLContext | None = None) -> Iterator[Endpoint]:
    """Serve the endpoint during the block; the user in a token is the client's id."""
    endpoint = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            who = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
            endpoint.asked.append((self.path, who, parse_qs(self.rfile.read(size).decode())))
            token = endpoint.token(who.partition(":")[0]).decode()
            good = json.dumps(
                {"access_token": token, "token_type": "Bearer", "expires_in": endpoint.lifetime}
            )
            status, body = endpoint.answer or (200, good.encode())
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        endpoint.url = f"http{'s' if tls else ''}://localhost:{server.server_port}/token?tenant=1"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield endpoint
        finally:
            server.shutdown()
            thread.join()
