"""What a load needs at a system before it begins, and what must be true there afterwards.

Before: the rule base, which belongs to an LMR that nobody runs, and for every LMR that runs a subscription that matches
every document of the load. Afterwards: each document is there once, in the version that was answered, and each LMR has
what its rules select.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from mdv.bench.load import Say, Target
from mdv.bench.loaded import Documents, Workload
from mdv.bench.workload import SCHEMA
from mdv.client import LARGEST_PAGE, Client, Item
from mdv.errors import BadRequest, Refused, Unavailable
from mdv.system import System

RULES_A_CALL = 10_000
MOST_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Ground:
    """A system that is ready for a load."""

    target: Target
    workload: Workload
    mdp: Client
    lmrs: tuple[Client, ...]
    idle: str | None
    """The LMR that has the rule base, if there is one."""

    @contextmanager
    def another_lmr(self, name: str) -> Iterator[System]:
        """Another LMR that wants every document, for a while; how its feed is reached."""
        made = self.mdp.change("POST", "/lmrs", {"name": name})
        try:
            self.mdp.change("POST", f"/lmrs/{name}/subscriptions", {"rule": self.workload.rule_for_all})
            yield replace(self.target.mdp, token=str(made["token"]))
        finally:
            self.mdp.change("DELETE", f"/lmrs/{name}", seconds=MOST_SECONDS)

    def problems(self, documents: Documents) -> list[str]:
        """What is not as it must be; nothing should be."""
        listed = self.listed()
        return [*_wrong_documents(listed, documents), *self._wrong_matches(documents), *self._wrong_caches(listed)]

    def listed(self) -> list[Item]:
        """The documents of this load that are there, each with its URI, version and position."""
        found: list[Item] = []
        after: str | None = self.workload.prefix
        while after is not None and after.startswith(self.workload.prefix):
            page = self.mdp.get("/documents", limit=LARGEST_PAGE, after=after)
            found += [item for item in page["items"] if item["uri"].startswith(self.workload.prefix)]
            after = page["next"]
        return found

    def _wrong_matches(self, documents: Documents) -> Iterator[str]:
        if self.idle is None or documents.in_doubt:
            return
        roots = self.mdp.get(f"/lmrs/{self.idle}")["roots"]
        if roots != documents.matched:
            yield f"The rule base selects {roots:,} resources; {documents.matched:,} match."

    def _wrong_caches(self, listed: list[Item]) -> Iterator[str]:
        there = len(listed) * self.workload.pairs
        for lmr in self.lmrs:
            lmr.get("/status", after=max((item["position"] for item in listed), default=0), wait=60)
            mended = lmr.change("POST", "/verify", seconds=MOST_SECONDS)["mended"]
            if mended:
                yield f"An LMR differed from the MDP in {len(mended)} of 256 buckets."
            wrong = lmr.change("POST", "/check", seconds=MOST_SECONDS)["problems"]
            yield from (f"An LMR holds something else than its closure: {problem}" for problem in wrong[:5])
            asked = f"search CycleProvider c where c.serverHost contains '.{self.workload.mark}' return c limit 10000"
            rows = len(lmr.post("/query", {"query": asked, "limit": 10_000})["rows"])
            if rows != min(there, 10_000):
                yield f"An LMR finds {rows:,} of the {there:,} providers that match."

    def mean_batch(self, after: int) -> float | None:
        """Documents of one transaction, of those after a position: what answers do not tell to who does not wait."""
        sizes = Counter(item["position"] for item in self.listed() if item["position"] > after)
        return sizes.total() / len(sizes) if sizes else None

    @property
    def position(self) -> int:
        """That of the last document."""
        return max((item["position"] for item in self.listed()), default=0)


def _wrong_documents(listed: list[Item], documents: Documents) -> Iterator[str]:
    found, due = {item["uri"]: item["version"] for item in listed}, documents.present
    if len(listed) != len(found):
        yield f"{len(listed) - len(found):,} documents are listed twice."
    missing, strange = due.keys() - found.keys(), found.keys() - due.keys() - documents.in_doubt
    if missing:
        yield f"{len(missing):,} documents were acknowledged and are not there, such as {min(missing)}."
    if strange:
        yield f"{len(strange):,} documents are there and should not be, such as {min(strange)}."
    for uri in sorted(uri for uri in due.keys() & found.keys() if due[uri] != found[uri])[:5]:
        yield f"{uri} has version {found[uri]}; {due[uri]} changes of it were acknowledged."


@contextmanager
def lay_ground(target: Target, workload: Workload, is_own: bool, say: Say) -> Iterator[Ground]:
    """Make a system ready. One that is not only for this is left as it was found."""
    with ExitStack() as stack:
        mdp = stack.enter_context(Client(target.mdp))
        lmrs = tuple(stack.enter_context(Client(lmr)) for lmr in target.lmrs)
        if is_own:
            mdp.put_schema(SCHEMA, "text/turtle")
        else:
            _check_schema(mdp, workload)
        idle = f"load-{workload.mark}" if workload.rules else None
        ground = Ground(target, workload, mdp, lmrs, idle)
        if not is_own:
            stack.callback(_delete_documents, ground, say)
        if idle is not None:
            say(f"Subscribing {workload.rules:,} rules for an LMR that nobody runs.")
            mdp.change("POST", "/lmrs", {"name": idle})
            if not is_own:
                stack.callback(mdp.change, "DELETE", f"/lmrs/{idle}", seconds=MOST_SECONDS)
            drafts = [{"rule": rule} for rule in workload.rule_base()]
            for first in range(0, len(drafts), RULES_A_CALL):
                part = drafts[first : first + RULES_A_CALL]
                mdp.change("POST", f"/lmrs/{idle}/subscriptions", part, seconds=MOST_SECONDS)
        for lmr in lmrs:
            made = lmr.change("POST", "/subscriptions", {"rule": workload.rule_for_all}, seconds=MOST_SECONDS)
            if not is_own:
                stack.callback(lmr.change, "DELETE", f"/subscriptions/{made['id']}", seconds=MOST_SECONDS)
        yield ground


def _check_schema(mdp: Client, workload: Workload) -> None:
    try:
        mdp.register(workload.uri(0), workload.body(0), "application/rdf+xml", dry_run=True)
    except Refused as error:
        raise BadRequest(
            f"The schema there does not take the documents of the load ({error.detail}): without --data and MDV_URL, a"
            " system is started for it."
        ) from error


def _delete_documents(ground: Ground, say: Say) -> None:
    say("Deleting the documents of the load.")
    deadline = time.monotonic() + MOST_SECONDS
    while listed := ground.listed():  # what was sent last may come only now
        for item in listed:
            ground.mdp.request("DELETE", "/documents", params={"uri": item["uri"]})
        while ground.listed():
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"Documents below {ground.workload.prefix} are still there: `mdv delete` deletes them."
                )
            time.sleep(0.1)
