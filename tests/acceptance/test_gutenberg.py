"""The catalogue of Project Gutenberg, three years one after the other: real documents, by difference."""

from __future__ import annotations

import hashlib
import json
import random
import tarfile
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

import pytest
from conftest import GUTENBERG

from mdv.db.read import document_statements, list_documents, read_document
from mdv.mdp.register import Outcome, Prepared, prepare

if TYPE_CHECKING:
    from conftest import Mdp

pytestmark = pytest.mark.skipif(not GUTENBERG.is_dir(), reason=f"the catalogue is not at {GUTENBERG}")

YEARS = ("2014", "2018", "2025")
BATCH = 100


def documents(year: str) -> Iterator[tuple[str, bytes]]:
    """The documents of a year by their URI."""
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


def register_all(mdp: Mdp, items: list[Prepared], results: Results | None = None) -> list[Outcome]:
    answers: list[Outcome] = []
    rest = iter(items)
    while batch := list(islice(rest, BATCH)):
        before = mdp.one("select position from mdp_state")
        for answer in mdp.register_batch(batch):
            assert isinstance(answer, Outcome), answer
            answers.append(answer)
        if results is not None and mdp.one("select position from mdp_state") > before:
            results.follow(mdp)
    return answers


class Results:
    """What rules match, kept up from nothing but what the filter says that changed."""

    def __init__(self, mdp: Mdp, rules: dict[str, str]) -> None:
        added = mdp.add_rules(list(rules.values()))
        self.rules = dict(zip(rules, added, strict=True))
        self.pairs: set[tuple[int, str]] = set()

    def follow(self, mdp: Mdp) -> None:
        for end, uri, matched in mdp.changes():
            assert ((end, uri) in self.pairs) != matched
            self.pairs ^= {(end, uri)}

    def of(self, name: str) -> set[str]:
        return {uri for end, uri in self.pairs if end in self.rules[name].ends}


def fingerprint(uris: set[str]) -> str:
    return hashlib.sha256("\n".join(sorted(uris)).encode()).hexdigest()[:16]


def stored(mdp: Mdp) -> set[str]:
    with mdp.engine.connect() as connection:
        return {row["uri"] for row in list_documents(connection, "", 100_000)}


def check_samples(mdp: Mdp, items: list[Prepared], year: str) -> None:
    with mdp.engine.connect() as connection:
        for item in random.Random(year).sample(items, 40):
            info = read_document(connection, item.uri)
            assert info is not None
            assert item.document is not None
            found = document_statements(connection, info)
            assert sorted(found, key=repr) == sorted(item.document.statements, key=repr)


def test_three_years_of_the_catalogue_by_difference(mdp: Mdp) -> None:
    body = json.loads((GUTENBERG / "expect.json").read_text("utf-8"))
    expected = body["expected"]
    schema = (GUTENBERG / "schema.ttl").read_text("utf-8")
    mdp.put_schema(schema)
    results = Results(mdp, body["rules"])
    for year in YEARS:
        items = prepared(mdp, year)
        assert len(items) == expected[year]["documents"]
        gone = stored(mdp) - {item.uri for item in items}
        version = items[0].schema_version
        register_all(mdp, items + [Prepared(uri, None, version) for uri in sorted(gone)], results)
        for name, rule in expected[year]["rules"].items():
            assert mdp.results_of(results.rules[name].id) == results.of(name)
            assert (len(results.of(name)), fingerprint(results.of(name))) == (rule["matches"], rule["sha256"]), name

        assert stored(mdp) == {item.uri for item in items}
        named = mdp.one(
            "select count(*) from resources r where uri not like '%#\\_:%'"
            " and exists (select from filter_data f where f.resource_id = r.id)"
        )
        assert named == expected[year]["named_resources"]
        check_samples(mdp, items, year)

        position, log = mdp.one("select position from mdp_state"), mdp.one("select count(*) from statement_log")
        again = register_all(mdp, prepared(mdp, year) if year == YEARS[0] else items)
        assert sum(o.inserted + o.updated + o.deleted + o.created for o in again) == 0
        assert mdp.one("select position from mdp_state") == position
        assert mdp.one("select count(*) from statement_log") == log
