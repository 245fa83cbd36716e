"""Receive webhooks of MDV: verify the signature of each message, and print it.

    python receive.py PORT SECRET

It needs nothing but Python.
"""

import base64
import hashlib
import hmac
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

MAX_BYTES, MAX_AGE_SECONDS = 65_536, 300


def is_signed(headers: dict[str, str], body: bytes, secret: str, now: float) -> bool:
    """Return whether MDV sent this message within the last five minutes (https://www.standardwebhooks.com)."""
    sent = headers.get("webhook-timestamp", "")
    if not sent.isdecimal() or abs(now - int(sent)) > MAX_AGE_SECONDS:
        return False
    content = f"{headers.get('webhook-id', '')}.{sent}.".encode() + body
    key = base64.b64decode(secret.removeprefix("whsec_"))
    wanted = b"v1," + base64.b64encode(hmac.new(key, content, hashlib.sha256).digest())
    return any(hmac.compare_digest(one.encode(), wanted) for one in headers.get("webhook-signature", "").split())


class WebhookHandler(BaseHTTPRequestHandler):
    """Answers 204 to messages of MDV, and 401 to all others."""

    def do_POST(self) -> None:
        body = self.rfile.read(min(int(self.headers.get("Content-Length", 0)), MAX_BYTES))
        headers = {name.lower(): value for name, value in self.headers.items()}
        if is_signed(headers, body, sys.argv[2], time.time()):
            print(body.decode(), flush=True)  # here, read the feed
            self.send_response(204)
        else:
            self.send_response(401)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write no access log."""


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", int(sys.argv[1])), WebhookHandler).serve_forever()
