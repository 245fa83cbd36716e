"""Register documents over HTTP during a batch or instead of it: by one or several clients, or at a fixed rate."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from mdv.bench.http_connection import HttpConnection, HttpConnectionError
from mdv.bench.load import WAIT_HEADERS, LoadTarget, count_waiting_jobs
from mdv.bench.load_results import ACCEPTED, DONE, TOO_MANY, Latency, RequestSample
from mdv.bench.load_system import REQUEST_TIMEOUT_SECONDS
from mdv.errors import Unavailable


@dataclass
class HttpSender:
    """Sends registrations over HTTP, and waits until each is carried out."""

    target: LoadTarget
    documents: Iterator[tuple[str, bytes]]
    samples: list[RequestSample] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def done(self) -> int:
        return self.outcomes[DONE] + self.outcomes[ACCEPTED]

    @property
    def failed(self) -> Mapping[str, int]:
        return {how: count for how, count in self.outcomes.items() if how not in (DONE, ACCEPTED, TOO_MANY)}

    def spread(self) -> Latency | None:
        return Latency.of(sample.seconds for sample in self.samples)

    async def one_by_one(self, clients: int, number: int) -> float:
        """Send documents. Each client sends its next one after the response to the previous one. Return the seconds."""
        left = iter(range(number))

        async def client() -> None:
            connection = self._connect()
            for _ in left:
                await self._send(connection, time.perf_counter())
            connection.close()

        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(client())
        return time.perf_counter() - began

    async def send_at_rate(self, rate: float, over: asyncio.Event) -> None:
        """Send at fixed times, independent of the responses, until `over` is set."""
        idle: list[HttpConnection] = []

        async def send(planned: float) -> None:
            connection = idle.pop() if idle else self._connect()
            await self._send(connection, planned)
            idle.append(connection)

        planned = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            while not over.is_set():
                group.create_task(send(planned))
                planned += 1 / rate
                await asyncio.sleep(max(0.0, planned - time.perf_counter()))
        for connection in idle:
            connection.close()

    async def send_for(self, rate: float, seconds: float) -> Latency | None:
        self.samples.clear()
        over = asyncio.Event()
        asyncio.get_running_loop().call_later(seconds, over.set)
        await self.send_at_rate(rate, over)
        return self.spread()

    async def wait_until_done(self) -> None:
        """Wait until all accepted jobs are carried out."""
        connection, deadline = self._connect(), time.perf_counter() + REQUEST_TIMEOUT_SECONDS
        while await count_waiting_jobs(connection):
            if time.perf_counter() > deadline:
                raise Unavailable(
                    f"Accepted jobs were not carried out within {REQUEST_TIMEOUT_SECONDS:g} s. Check the workers."
                )
            await asyncio.sleep(0.1)
        connection.close()

    async def _send(self, connection: HttpConnection, planned: float) -> None:
        """Send the next document, and retry it after each 429 response."""
        uri, text = next(self.documents)
        outcome = TOO_MANY
        while outcome == TOO_MANY:
            try:
                answer = await connection.request(
                    "PUT", f"/api/v1/documents?uri={quote(uri, safe='')}", text, WAIT_HEADERS
                )
                outcome = {200: DONE, 201: DONE, 202: ACCEPTED}.get(answer.status, str(answer.status))
                await asyncio.sleep(answer.pause if outcome == TOO_MANY else 0)
            except HttpConnectionError as error:
                outcome = str(error)
            self.outcomes[outcome] += 1
        self.samples.append(RequestSample(planned, time.perf_counter(), outcome))

    def _connect(self) -> HttpConnection:
        return HttpConnection(self.target.mdp.url, self.target.mdp.token)
