"""Record when tokens were last used, in the background: no request waits for it."""

from __future__ import annotations

import threading
import time

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from mdv.db.tokens import USE_INTERVAL_SECONDS, Token, record_token_uses

log = structlog.get_logger()

MAX_TOKENS_REMEMBERED = 10_000


class TokenUses:
    """Writes the time of last use of tokens, at most once per token and minute. One thread writes for all requests, and
    ends when nothing is left to write."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._waiting: set[int] = set()
        self._recorded: dict[int, float] = {}
        self._is_writing = False

    def record(self, token: Token) -> None:
        """Record that a token is used now. This returns at once."""
        if not token.is_use_due:
            return
        now = time.monotonic()
        with self._lock:
            # While a use is being written, or cannot be written, requests still find the token due.
            if now - self._recorded.get(token.id, float("-inf")) < USE_INTERVAL_SECONDS:
                return
            if len(self._recorded) >= MAX_TOKENS_REMEMBERED:
                self._recorded.clear()
            self._recorded[token.id] = now
            self._waiting.add(token.id)
            if self._is_writing:
                return
            self._is_writing = True
        threading.Thread(target=self._write, name="token-uses", daemon=True).start()

    def _write(self) -> None:
        while numbers := self._take():
            try:
                with self._engine.connect() as connection:
                    record_token_uses(connection, numbers)
            except SQLAlchemyError as error:
                log.warning("last use of tokens not recorded", tokens=sorted(numbers), reason=repr(error)[:200])

    def _take(self) -> set[int]:
        with self._lock:
            taken, self._waiting = self._waiting, set()
            self._is_writing = bool(taken)
        return taken
