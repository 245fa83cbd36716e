"""The catalogue of Project Gutenberg, if it is stored beside the checkout."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from mdv.inspect.sql.documents import list_documents
from mdv.mdp.register import Prepared, RegistrationOutcome, prepare
from tests.support.mdp import Mdp

GUTENBERG = Path(__file__).parents[3] / "shared" / "data" / "gutenberg"


YEARS = ("2014", "2018", "2025")


BATCH = 300


def documents(year: str) -> Iterator[tuple[str, bytes]]:
    """Return the documents of a year by their URI."""
    with tarfile.open(GUTENBERG / f"gutenberg-{year}.tar.xz") as archive:
        for member in archive:
            if member.isfile() and (file := archive.extractfile(member)):
                name = member.name.rsplit("/", 1)[-1]
                number = name.removeprefix("pg").removesuffix(".rdf")
                yield f"http://www.gutenberg.org/cache/epub/{number}/{name}", file.read()


def prepared(mdp: Mdp, year: str) -> list[Prepared]:
    with mdp.engine.connect() as connection:
        schema = mdp.schemas.now(connection)
    return [prepare(uri, body, "application/rdf+xml", schema) for uri, body in documents(year)]


def register_all(mdp: Mdp, items: list[Prepared], results: Results | None = None) -> list[RegistrationOutcome]:
    answers: list[RegistrationOutcome] = []
    rest = iter(items)
    while batch := list(islice(rest, BATCH)):
        before = mdp.one("select position from mdp_state")
        for answer in mdp.register_batch(batch):
            assert isinstance(answer, RegistrationOutcome), answer
            answers.append(answer)
        if results is not None and mdp.one("select position from mdp_state") > before:
            results.follow(mdp)
    return answers


class Results:
    """The matches of rules, maintained from the filter's changes only."""

    def __init__(self, mdp: Mdp, rules: Mapping[str, int]) -> None:
        """`rules` are the ids of rules by name."""
        self.rules = rules
        self.ends = {name: mdp.ends_of(rule_id) for name, rule_id in rules.items()}
        self.pairs: set[tuple[int, str]] = set()

    def follow(self, mdp: Mdp) -> None:
        for end, uri, matched in mdp.changes():
            assert ((end, uri) in self.pairs) != matched
            self.pairs ^= {(end, uri)}

    def of(self, name: str) -> set[str]:
        return {uri for end, uri in self.pairs if end in self.ends[name]}


def fingerprint(uris: set[str]) -> str:
    return hashlib.sha256("\n".join(sorted(uris)).encode()).hexdigest()[:16]


def stored(mdp: Mdp) -> set[str]:
    with mdp.engine.connect() as connection:
        return {row["uri"] for row in list_documents(connection, "", 100_000)}
