"""Event-condition-action rules on two yearly editions of the Project Gutenberg catalogue.

Documents that are registered one by one and in batches give the same result, which is also computed from the files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from zlib import crc32

import pyoxigraph
import pytest

from mdv.mdp.eca.change_rules import EcaDraft, add_rules
from mdv.mdp.register import Prepared, RegistrationOutcome
from tests.support.eca_comparison import Documents, read_documents
from tests.support.gutenberg import GUTENBERG, documents, prepared
from tests.support.mdp import Mdp
from tests.support.two_processes import System, systems

pytestmark = pytest.mark.skipif(not GUTENBERG.is_dir(), reason=f"the catalogue is not at {GUTENBERG}")

E = "http://eca.example/"
SCHEMA = f"""
@prefix e: <{E}> .
e:Number a rdfs:Class . e:Counter a rdfs:Class .
e:succ a rdf:Property ; rdfs:range e:Number . e:value a rdf:Property ; rdfs:range e:Number .
e:before a rdf:Property ; rdfs:range xsd:integer ; mdv:setValued true .
e:mark a rdf:Property ; rdfs:range xsd:string ; mdv:setValued true .
"""
RULES = f"""
RULE before ON UPDATE (_, downloads, _ -> _) IF TRUE DO INSERT ($delta, before, $delta.old_target) ;;
RULE count ON UPDATE (_, downloads, _ -> _) IF $delta
DO LET $next := resource({E}changes)/target(value)/target(succ) IN UPDATE (resource({E}changes), value, _ -> $next) ;;
RULE fewer ON UPDATE (_, downloads, _ -> _) IF $delta.new_target < $delta.old_target
DO INSERT ($delta, mark, 'fewer') ;;
RULE popular ON INSERT (_, before, _) IF $delta/target(downloads) > 200 and not $delta/target(mark) = 'fewer'
DO INSERT ($delta, mark, 'popular') ;;
RULE old ON INSERT (_, alias, _) IF $delta/target(birthdate) < 1800
DO INSERT (resource({E}list), seq++, $delta) ;;
RULE withdrawn ON DELETE resource() AS INSTANCE OF ebook IF TRUE DO INSERT ($delta, mark, 'withdrawn')
"""
NUMBERS = 1_500
SHARE = 5
"""One document of so many is registered."""
BATCH = 100


@pytest.fixture(scope="session")
def system(postgres: object, template: str) -> System:
    return systems(Mdp, postgres, template)  # type: ignore[arg-type]


def load(mdp: Mdp, batch: int) -> tuple[Documents, int]:
    """Register two editions, the second under rules. Return the documents, and how often rules fired."""
    mdp.put_schema((GUTENBERG / "schema.ttl").read_text("utf-8") + SCHEMA)
    chain = " ".join(f"e:n{n} a e:Number ; e:succ e:n{n + 1} ." for n in range(NUMBERS))
    mdp.put({"http://eca.example/doc": f"@prefix e: <{E}> . {chain} e:changes a e:Counter ; e:value e:n0 ."
                                       " e:list a rdf:Seq ."})  # fmt: skip
    first = some_of(prepared(mdp, "2014"))
    register(mdp, first, BATCH)
    with mdp.engine.begin() as connection:
        add_rules(connection, EcaDraft(RULES), mdp.provider)
    second = some_of(prepared(mdp, "2018"))
    gone = {item.uri for item in first} - {item.uri for item in second}
    version = second[0].schema_version
    fired = register(mdp, [*second, *(Prepared(uri, None, version) for uri in sorted(gone))], batch)
    with mdp.engine.connect() as connection:
        return read_documents(connection), fired


def is_chosen(uri: str) -> bool:
    return crc32(uri.encode()) % SHARE == 0


def some_of(items: list[Prepared]) -> list[Prepared]:
    return [item for item in items if is_chosen(item.uri)]


def register(mdp: Mdp, items: list[Prepared], batch: int) -> int:
    fired = 0
    for start in range(0, len(items), batch):
        for answer in mdp.register_batch(items[start : start + batch]):
            assert isinstance(answer, RegistrationOutcome), answer
            fired += answer.fired or 0
    return fired


def downloads(year: str) -> dict[str, int]:
    """Return the downloads of each book, as another RDF library reads them."""
    found: dict[str, int] = {}
    for uri, body in documents(year):
        if not is_chosen(uri):
            continue
        for quad in pyoxigraph.parse(body, format=pyoxigraph.RdfFormat.RDF_XML, base_iri=uri):
            if quad.predicate.value.endswith("/pgterms/downloads"):
                found[quad.subject.value] = int(quad.object.value)
    return found


def marks(stored: Documents, name: str) -> Mapping[str, set[str]]:
    """Return the values of a property that rules inserted."""
    found = defaultdict(set)
    for one in stored["urn:mdv:eca:main"]:
        if one.property == E + name:
            found[one.subject].add(one.object.value)
    return found


def test_rules_on_two_editions_do_the_same_one_by_one_and_in_batches(system: System) -> None:
    with system() as (alone, _):
        one_by_one, fired = load(alone, 1)
    with system() as (together, _):
        in_batches, fired_together = load(together, BATCH)

    assert one_by_one == in_batches and fired == fired_together
    before, after = downloads("2014"), downloads("2018")
    changed = {book for book in before.keys() & after.keys() if before[book] != after[book]}
    assert len(changed) > 300 / SHARE
    assert marks(one_by_one, "before") == {book: {str(before[book])} for book in changed}
    (value,) = (one.object.value for one in one_by_one["http://eca.example/doc"] if one.property == E + "value")
    assert value == f"{E}n{len(changed)}"
    found = marks(one_by_one, "mark")
    withdrawn = before.keys() - after.keys()
    assert {book for book, words in found.items() if "withdrawn" in words} == withdrawn
    fewer = {book for book in changed if after[book] < before[book]}
    assert {book for book, words in found.items() if "fewer" in words} == fewer
    popular = {book for book in changed if after[book] > 200}
    assert {book for book, words in found.items() if "popular" in words} == popular
