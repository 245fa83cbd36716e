"""A load as careful clients make it: uncertain requests are retried with the same key until they are certain."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import httpx2

from tests.support.eventually import eventually
from tests.support.ledger import Content, Ledger, Rule
from tests.support.local_http import local_client
from tests.support.server import ADMIN, TURTLE, path_of

THREADS = 4
DOCUMENTS = 6
"""Documents per thread. No two threads write the same one, so the order of its versions is known."""
MARKS = ("red", "blue", "grey")
PASSING = Rule("blue", over=150)
"""The rule that is subscribed and unsubscribed."""
PATIENCE = 120.0
BREATH = 0.02
"""Seconds between two changes of a thread, to leave processor time for starting processes."""


class Careful:
    """A client that retries until it has a result. Its requests may fail, hang, be refused, or be answered later."""

    def __init__(self, urls: Callable[[], Sequence[str]], ledger: Ledger) -> None:
        self._urls = urls
        self._ledger = ledger
        self._http = local_client(headers={"Authorization": f"Bearer {ADMIN}"}, timeout=httpx2.Timeout(8, connect=2))
        self._turn = 0
        self.asked_again: Counter[str] = Counter()
        """Reasons of retries, with their counts."""

    def change(self, method: str, path: str, key: str, wait: int | None, **body: Any) -> dict[str, Any]:
        """Return the result of a change, once that is certain."""
        return self.ended(self.send(method, path, key, wait, **body))

    def send(self, method: str, path: str, key: str, wait: int | None, **body: Any) -> str | dict[str, Any]:
        """Return the job of a change that is certainly queued, or its result if it has ended."""
        self._ledger.keys.add(key)
        headers = {"Idempotency-Key": key} | body.pop("headers", {})
        if wait is not None:
            headers["Prefer"] = f"wait={wait}"
        answer = self._ask(method, path, headers=headers, **body)
        if answer.status_code == 202:
            return str(answer.json()["job"])
        assert answer.status_code in (200, 201), f"{method} {path} was refused: {answer.status_code} {answer.text}"
        return dict(answer.json())

    def ended(self, sent: str | dict[str, Any]) -> dict[str, Any]:
        """Return the result of a change after its job has ended."""
        if not isinstance(sent, str):
            return sent

        def done() -> dict[str, Any] | None:
            answer = self._ask("GET", f"/api/v1/jobs/{sent}")
            assert answer.status_code == 200, f"job {sent} was accepted and lost: {answer.status_code} {answer.text}"
            job: dict[str, Any] = answer.json()
            assert job["state"] != "failed", f"job {sent} failed: {job}"
            return job if job["state"] == "done" else None

        return dict(eventually(done, PATIENCE, interval=0.05)["result"])

    def _ask(self, method: str, path: str, **more: Any) -> httpx2.Response:
        """Return a definite answer, retrying timeouts and refusals that are temporary."""
        last = ""

        def answered() -> list[httpx2.Response]:
            nonlocal last
            urls = self._urls()
            try:
                answer = self._http.request(method, urls[self._turn % len(urls)] + path, **more)
                if answer.status_code != 429 and answer.status_code < 500:
                    return [answer]
                why, last = str(answer.status_code), answer.text
            except httpx2.HTTPError as error:
                self._turn += 1
                why, last = "no answer", repr(error)
            self.asked_again[why] += 1
            return []

        return eventually(answered, PATIENCE, interval=0.1, detail=lambda: f"{method} {path}: {last}")[0]

    def close(self) -> None:
        self._http.close()


class Writer:
    """Threads that register, change and delete documents, and subscribe at times, from a seed."""

    def __init__(self, urls: Callable[[], Sequence[str]], ledger: Ledger, lmr: str, number: int, seed: str) -> None:
        self._urls = urls
        self._ledger = ledger
        self._lmr, self._number = lmr, number
        self._seed = seed
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(THREADS)]
        self._later: list[threading.Thread] = []
        self.acknowledged = 0
        self.asked_again: Counter[str] = Counter()

    def __enter__(self) -> Writer:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads + self._later:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def goes_on(self, changes: int, seconds: float = 90) -> None:
        """Wait until `count` more changes were acknowledged."""
        wanted = self.acknowledged + changes

        def enough() -> bool:
            if self._errors:
                raise self._errors[0]
            return self.acknowledged >= wanted

        eventually(enough, seconds)

    def queue(self, count: int, wait: bool = True) -> None:
        """Queue many documents at once, and wait until all are queued; a thread waits for their results."""
        each, queued = count // THREADS, threading.Barrier(THREADS + wait)
        for n in range(THREADS):
            thread = threading.Thread(target=self._many, args=(n, each, queued), daemon=True)
            self._later.append(thread)
            thread.start()
        if wait:
            queued.wait(PATIENCE)

    def _many(self, number: int, count: int, queued: threading.Barrier) -> None:
        def act(client: Careful) -> None:
            rng = random.Random(f"{self._seed}/many/{number}")
            uris = [f"http://faults.example/many/{number}/{n}" for n in range(count)]
            self._burst(client, rng, uris, f"{self._seed}/many/{number}", queued)

        self._guarded(act)

    def _run(self, number: int) -> None:
        def act(client: Careful) -> None:
            rng = random.Random(f"{self._seed}/{number}")
            turn = 0
            while not self._stop.wait(BREATH):
                turn += 1
                self._step(client, rng, number, f"{self._seed}/{number}/{turn}")

        self._guarded(act)

    def _guarded(self, act: Callable[[Careful], None]) -> None:
        client = Careful(self._urls, self._ledger)
        try:
            act(client)
        except BaseException as error:
            self._errors.append(error)
        finally:
            with self._lock:
                self.asked_again += client.asked_again
            client.close()

    def _step(self, client: Careful, rng: random.Random, number: int, key: str) -> None:
        uris = [f"http://faults.example/{number}/{n}" for n in range(DOCUMENTS)]
        uri, dice = rng.choice(uris), rng.random()
        now, _ = self._ledger.present(uri)
        if number == 0 and dice < 0.05:
            self._turn_rule(client, key)
        elif dice < 0.15 and now is not None:
            client.change("DELETE", path_of(uri), key, wait=5, headers=self._only_now(uri))
            self._noted(uri, None)
        elif dice < 0.30:
            self._burst(client, rng, rng.sample(uris, 4), key)
        else:
            content = now if now is not None and dice < 0.40 else _content(rng, uris)
            client.change("PUT", path_of(uri), key, wait=5, **self._body(uri, content))
            self._noted(uri, content)

    def _burst(
        self, client: Careful, rng: random.Random, uris: list[str], key: str, queued: threading.Barrier | None = None
    ) -> None:
        """Send several documents one after the other; wait for results only after all are queued."""
        sent = []
        for n, uri in enumerate(uris):
            content = _content(rng, uris)
            job = client.send("PUT", path_of(uri), f"{key}/{n}", None, **self._body(uri, content))
            sent.append((uri, content, job))
        if queued is not None:
            queued.wait(PATIENCE)
        for uri, content, job in sent:
            client.ended(job)
            self._noted(uri, content)

    def _body(self, uri: str, content: Content) -> dict[str, Any]:
        return {"content": content.text().encode(), "headers": {"Content-Type": TURTLE} | self._only_now(uri)}

    def _only_now(self, uri: str) -> dict[str, str]:
        """The precondition that a document is unchanged since this writer's last change: a repetition is refused."""
        now, version = self._ledger.present(uri)
        return {"If-None-Match": "*"} if now is None else {"If-Match": f'"{version}"'}

    def _turn_rule(self, client: Careful, key: str) -> None:
        """Subscribe the rule if it is not subscribed, else unsubscribe it."""
        path = f"/api/v1/lmrs/{self._number}/subscriptions"
        old = next((id for id, rule in self._ledger.rules(self._lmr).items() if rule == PASSING), None)
        if old is None:
            answer = client.change("POST", path, key, None, json={"rule": PASSING.text})
            self._ledger.subscribed(self._lmr, answer["ids"][0] if "ids" in answer else answer["id"], PASSING)
        else:
            client.change("DELETE", f"{path}/{old}", key, None)
            self._ledger.unsubscribed(self._lmr, old)

    def _noted(self, uri: str, content: Content | None) -> None:
        self._ledger.note(uri, content)
        with self._lock:
            self.acknowledged += 1


def _content(rng: random.Random, uris: list[str]) -> Content:
    return Content(rng.choice(MARKS), rng.randrange(10**6), rng.randrange(200), f"{rng.choice(uris)}#i")
