"""Prepare a system for a load, and check it afterwards.

Before the load, the rule base is added to an LMR that is not running, and every running LMR gets a subscription that
matches all documents of the load. Afterwards, each document must be stored once, in the acknowledged version, and each
LMR must hold what its rules select.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from mdv.bench.load import LoadTarget, PrintProgress
from mdv.bench.load_documents import LoadDocuments, LoadWorkload
from mdv.bench.workload import SCHEMA
from mdv.client import MAX_PAGE_SIZE, Client, Item
from mdv.errors import BadRequest, Refused, Unavailable
from mdv.system import System

RULES_PER_REQUEST = 10_000
REQUEST_TIMEOUT_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class LoadSystem:
    """A system that is prepared for a load."""

    target: LoadTarget
    workload: LoadWorkload
    mdp: Client
    lmrs: tuple[Client, ...]
    idle: str | None
    """The LMR that owns the rule base, if there is one."""

    @contextmanager
    def temporary_lmr(self, name: str) -> Iterator[System]:
        """Create another LMR that subscribes to every document, and delete it afterwards. Yield the access to its
        feed."""
        made = self.mdp.change("POST", "/lmrs", {"name": name})
        try:
            self.mdp.change("POST", f"/lmrs/{name}/subscriptions", {"rule": self.workload.rule_for_all})
            yield replace(self.target.mdp, token=str(made["token"]))
        finally:
            self.mdp.change("DELETE", f"/lmrs/{name}", seconds=REQUEST_TIMEOUT_SECONDS)

    def problems(self, documents: LoadDocuments) -> list[str]:
        """Return everything that is wrong after the load; normally nothing."""
        listed = self.listed()
        return [*_check_documents(listed, documents), *self._check_matches(documents), *self._check_caches(listed)]

    def listed(self) -> list[Item]:
        """Return the stored documents of this load, each with its URI, version and position."""
        found: list[Item] = []
        after: str | None = self.workload.prefix
        while after is not None and after.startswith(self.workload.prefix):
            page = self.mdp.get("/documents", limit=MAX_PAGE_SIZE, after=after)
            found += [item for item in page["items"] if item["uri"].startswith(self.workload.prefix)]
            after = page["next"]
        return found

    def _check_matches(self, documents: LoadDocuments) -> Iterator[str]:
        if self.idle is None or documents.in_doubt:
            return
        roots = self.mdp.get(f"/lmrs/{self.idle}")["roots"]
        if roots != documents.matched:
            yield f"The rule base selects {roots:,} resources; expected are {documents.matched:,}."

    def _check_caches(self, listed: list[Item]) -> Iterator[str]:
        expected = len(listed) * self.workload.pairs
        for lmr in self.lmrs:
            lmr.get("/status", after=max((item["position"] for item in listed), default=0), wait=60)
            repaired = lmr.change("POST", "/verify", seconds=REQUEST_TIMEOUT_SECONDS)["mended"]
            if repaired:
                yield f"An LMR differed from the MDP in {len(repaired)} of 256 buckets."
            wrong = lmr.change("POST", "/check", seconds=REQUEST_TIMEOUT_SECONDS)["problems"]
            yield from (f"The cache of an LMR differs from its closure: {problem}" for problem in wrong[:5])
            query = f"search CycleProvider c where c.serverHost contains '.{self.workload.mark}' return c limit 10000"
            rows = len(lmr.post("/query", {"query": query, "limit": 10_000})["rows"])
            if rows != min(expected, 10_000):
                yield f"An LMR finds {rows:,} of the {expected:,} providers that match."

    def mean_batch(self, after: int) -> float | None:
        """Return the average number of documents per transaction after a position. Clients that do not wait cannot know
        it."""
        sizes = Counter(item["position"] for item in self.listed() if item["position"] > after)
        return sizes.total() / len(sizes) if sizes else None

    @property
    def position(self) -> int:
        """The position of the last document."""
        return max((item["position"] for item in self.listed()), default=0)


def _check_documents(listed: list[Item], documents: LoadDocuments) -> Iterator[str]:
    found, due = {item["uri"]: item["version"] for item in listed}, documents.present
    if len(listed) != len(found):
        yield f"{len(listed) - len(found):,} documents are listed twice."
    missing, unexpected = due.keys() - found.keys(), found.keys() - due.keys() - documents.in_doubt
    if missing:
        yield f"{len(missing):,} acknowledged documents are missing, such as {min(missing)}."
    if unexpected:
        yield f"{len(unexpected):,} documents are stored that should not be, such as {min(unexpected)}."
    for uri in sorted(uri for uri in due.keys() & found.keys() if due[uri] != found[uri])[:5]:
        yield f"{uri} has version {found[uri]}, but {due[uri]} changes of it were acknowledged."


@contextmanager
def prepare_load_system(
    target: LoadTarget, workload: LoadWorkload, is_own: bool, print_progress: PrintProgress
) -> Iterator[LoadSystem]:
    """Prepare a system. Unless it is a dedicated one, it is left as it was found."""
    with ExitStack() as stack:
        mdp = stack.enter_context(Client(target.mdp))
        lmrs = tuple(stack.enter_context(Client(lmr)) for lmr in target.lmrs)
        if is_own:
            mdp.put_schema(SCHEMA, "text/turtle")
        else:
            _check_schema(mdp, workload)
        idle = f"load-{workload.mark}" if workload.rules else None
        system = LoadSystem(target, workload, mdp, lmrs, idle)
        if not is_own:
            stack.callback(_delete_documents, system, print_progress)
        if idle is not None:
            print_progress(f"Subscribing to {workload.rules:,} rules for an LMR that is not running.")
            mdp.change("POST", "/lmrs", {"name": idle})
            if not is_own:
                stack.callback(mdp.change, "DELETE", f"/lmrs/{idle}", seconds=REQUEST_TIMEOUT_SECONDS)
            drafts = [{"rule": rule} for rule in workload.rule_base()]
            for first in range(0, len(drafts), RULES_PER_REQUEST):
                chunk = drafts[first : first + RULES_PER_REQUEST]
                mdp.change("POST", f"/lmrs/{idle}/subscriptions", chunk, seconds=REQUEST_TIMEOUT_SECONDS)
        for lmr in lmrs:
            made = lmr.change(
                "POST", "/subscriptions", {"rule": workload.rule_for_all}, seconds=REQUEST_TIMEOUT_SECONDS
            )
            if not is_own:
                stack.callback(lmr.change, "DELETE", f"/subscriptions/{made['id']}", seconds=REQUEST_TIMEOUT_SECONDS)
        yield system


def _check_schema(mdp: Client, workload: LoadWorkload) -> None:
    try:
        mdp.register(workload.uri(0), workload.body(0), "application/rdf+xml", dry_run=True)
    except Refused as error:
        raise BadRequest(
            f"The schema of this system refuses the documents of the load ({error.detail}). Omit --data and MDV_URL,"
            " so that a system is started for the load."
        ) from error


def _delete_documents(system: LoadSystem, print_progress: PrintProgress) -> None:
    print_progress("Deleting the documents of the load.")
    deadline = time.monotonic() + REQUEST_TIMEOUT_SECONDS
    while listed := system.listed():  # late requests may still be carried out
        for item in listed:
            system.mdp.request("DELETE", "/documents", params={"uri": item["uri"]})
        while system.listed():
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"Documents below {system.workload.prefix} could not be deleted. Delete them with `mdv delete`."
                )
            time.sleep(0.1)
