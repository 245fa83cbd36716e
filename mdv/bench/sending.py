"""Registrations over HTTP beside a batch, and instead of it: one by one, by several clients, or at a fixed rate."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from mdv.bench.figures import ACCEPTED, DONE, TOO_MANY, Sample, Spread
from mdv.bench.ground import MOST_SECONDS
from mdv.bench.load import WAIT, Target, jobs_waiting
from mdv.bench.wire import Wire, WireError
from mdv.errors import Unavailable


@dataclass
class Sending:
    """Registrations over HTTP, each answered when it is done."""

    target: Target
    documents: Iterator[tuple[str, bytes]]
    samples: list[Sample] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def done(self) -> int:
        return self.outcomes[DONE] + self.outcomes[ACCEPTED]

    @property
    def failed(self) -> Mapping[str, int]:
        return {how: count for how, count in self.outcomes.items() if how not in (DONE, ACCEPTED, TOO_MANY)}

    def spread(self) -> Spread | None:
        return Spread.of(sample.seconds for sample in self.samples)

    async def one_by_one(self, clients: int, number: int) -> float:
        """Send so many documents, each client the next when the one before is answered; the seconds that takes."""
        left = iter(range(number))

        async def client() -> None:
            wire = self._wire()
            for _ in left:
                await self._send(wire, time.perf_counter())
            wire.close()

        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(client())
        return time.perf_counter() - began

    async def at_rate(self, rate: float, over: asyncio.Event) -> None:
        """Send at fixed times, whatever the answers, until it is over."""
        idle: list[Wire] = []

        async def send(planned: float) -> None:
            wire = idle.pop() if idle else self._wire()
            await self._send(wire, planned)
            idle.append(wire)

        planned = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            while not over.is_set():
                group.create_task(send(planned))
                planned += 1 / rate
                await asyncio.sleep(max(0.0, planned - time.perf_counter()))
        for wire in idle:
            wire.close()

    async def for_a_while(self, rate: float, seconds: float) -> Spread | None:
        self.samples.clear()
        over = asyncio.Event()
        asyncio.get_running_loop().call_later(seconds, over.set)
        await self.at_rate(rate, over)
        return self.spread()

    async def until_done(self) -> None:
        """Wait until nothing that was accepted waits."""
        wire, deadline = self._wire(), time.perf_counter() + MOST_SECONDS
        while await jobs_waiting(wire):
            if time.perf_counter() > deadline:
                raise Unavailable(f"What was accepted was not carried out within {MOST_SECONDS:g} s.")
            await asyncio.sleep(0.1)
        wire.close()

    async def _send(self, wire: Wire, planned: float) -> None:
        """Send the next document, again and again if it is told to come later."""
        uri, text = next(self.documents)
        outcome = TOO_MANY
        while outcome == TOO_MANY:
            try:
                answer = await wire.ask("PUT", f"/api/v1/documents?uri={quote(uri, safe='')}", text, WAIT)
                outcome = {200: DONE, 201: DONE, 202: ACCEPTED}.get(answer.status, str(answer.status))
                await asyncio.sleep(answer.pause if outcome == TOO_MANY else 0)
            except WireError as error:
                outcome = str(error)
            self.outcomes[outcome] += 1
        self.samples.append(Sample(planned, time.perf_counter(), outcome))

    def _wire(self) -> Wire:
        return Wire(self.target.mdp.url, self.target.mdp.token)
