"""The acknowledged changes and their consequences, computed naively, without MDV's own code."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.support.server import V, turtle

TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
INTEGER = "^^<http://www.w3.org/2001/XMLSchema#integer>"


@dataclass(frozen=True, slots=True)
class Content:
    """A document of one provider, `#h`, and an information, `#i`; the provider may refer to another document's."""

    mark: str
    port: int
    memory: int
    target: str

    def text(self) -> str:
        return turtle(
            f"<#h> a ex:CycleProvider ; ex:serverHost '{self.mark}.example' ; ex:serverPort {self.port} ;"
            f" ex:serverInformation <{self.target}> .",
            f"<#i> a ex:ServerInformation ; ex:memory {self.memory} .",
        )

    def resources(self, uri: str) -> dict[str, frozenset[str]]:
        """Return its statements by resource, as lines of N-Triples."""
        host, information = f"{uri}#h", f"{uri}#i"
        return {
            host: frozenset({
                f"<{host}> {TYPE} <{V}CycleProvider> .",
                f'<{host}> <{V}serverHost> "{self.mark}.example" .',
                f'<{host}> <{V}serverPort> "{self.port}"{INTEGER} .',
                f"<{host}> <{V}serverInformation> <{self.target}> .",
            }),
            information: frozenset({
                f"<{information}> {TYPE} <{V}ServerInformation> .",
                f'<{information}> <{V}memory> "{self.memory}"{INTEGER} .',
            }),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rule:
    """Select providers whose host contains `mark` and, with `over`, whose information has more memory."""

    mark: str
    over: int | None = None

    @property
    def text(self) -> str:
        more = "" if self.over is None else f" and c.serverInformation.memory > {self.over}"
        return f"search CycleProvider c register c where c.serverHost contains '{self.mark}'{more}"

    def selects(self, content: Content, memories: Mapping[str, int]) -> bool:
        enough = self.over is None or memories.get(content.target, self.over) > self.over
        return self.mark in f"{content.mark}.example" and enough


class Ledger:
    """The changes that a system has acknowledged: every version of every document, and each LMR's rules by number."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._versions: dict[str, list[Content | None]] = defaultdict(list)
        self._rules: dict[str, dict[int, Rule]] = defaultdict(dict)
        self.keys: set[str] = set()
        """The keys of all requested changes."""

    def note(self, uri: str, content: Content | None) -> None:
        """Record an acknowledged change of a document. The same content again is no change."""
        with self._lock:
            versions = self._versions[uri]
            if not versions or versions[-1] != content:
                versions.append(content)

    def subscribed(self, lmr: str, number: int, rule: Rule) -> None:
        with self._lock:
            self._rules[lmr][number] = rule

    def unsubscribed(self, lmr: str, number: int) -> None:
        with self._lock:
            del self._rules[lmr][number]

    def present(self, uri: str) -> tuple[Content | None, int]:
        """Return the present content of a document, and the number of that version."""
        with self._lock:
            versions = self._versions.get(uri)
            return (versions[-1], len(versions)) if versions else (None, 0)

    def versions(self) -> dict[str, list[Content | None]]:
        with self._lock:
            return {uri: list(versions) for uri, versions in self._versions.items()}

    def rules(self, lmr: str) -> dict[int, Rule]:
        with self._lock:
            return dict(self._rules[lmr])

    def held(self, lmr: str) -> dict[str, frozenset[str]]:
        """Return what an LMR should hold now: resources, and the lines of N-Triples about each."""
        documents = {uri: versions[-1] for uri, versions in self.versions().items() if versions[-1] is not None}
        return _closure(documents, self.rules(lmr).values())


def _closure(documents: Mapping[str, Content], rules: Iterable[Rule]) -> dict[str, frozenset[str]]:
    rules = list(rules)
    memories = {f"{uri}#i": content.memory for uri, content in documents.items()}
    said = {name: lines for uri, content in documents.items() for name, lines in content.resources(uri).items()}
    held: set[str] = set()
    for uri, content in documents.items():
        if any(rule.selects(content, memories) for rule in rules):
            held |= {f"{uri}#h", content.target}  # the reference is strong
    return {name: said[name] for name in held if name in said}
