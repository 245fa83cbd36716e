"""The content of a cache, read row by row, to be compared with the expected content."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import select

from mdv.db.cache_tables import GLOBAL_DOCUMENT, local_documents, resources, statements, suspended_rules, vocabulary
from mdv.lmr.cache import Cache
from mdv.lmr.checksum import checksum
from mdv.lmr.garbage_collector import find_problems
from mdv.lmr.schema import make_cache_schema
from mdv.model import Statement, Term
from mdv.rdf.sortkey import sort_key
from tests.support.naive_mdp import LABEL, SIZE, State


class Content(NamedTuple):
    """Every row, with numbers replaced by names."""

    content: dict[str, set[tuple[str, Term]]]
    selected: set[str]
    local: dict[str, set[Statement]]
    typed: set[tuple[str, str, str | None]]
    suspended: dict[int, str]


def content_of(cache: Cache) -> Content:
    r, s, target = resources.c, statements.c, resources.alias("target")
    name, datatype = vocabulary.alias("name"), vocabulary.alias("datatype")
    with cache.reading() as connection:
        rows = connection.execute(select(r.uri, r.present, r.selected)).all()
        said = connection.execute(
            select(r.uri, name.c.uri, target.c.uri, s.value, s.lang, datatype.c.uri, s.document_id, s.number)
            .join_from(statements, resources, r.id == s.resource_id)
            .join(name, name.c.id == s.property_id)
            .outerjoin(target, target.c.id == s.target_id)
            .outerjoin(datatype, datatype.c.id == s.datatype_id)
        ).all()
        documents = {row.id: row.uri for row in connection.execute(select(local_documents))}
        suspended = {row.rule_id: row.reason for row in connection.execute(select(suspended_rules))}
    content: dict[str, set[tuple[str, Term]]] = {row.uri: set() for row in rows if row.present}
    local: dict[str, set[Statement]] = {uri: set() for uri in documents.values()}
    typed: set[tuple[str, str, str | None]] = set()
    for subject, property_, uri, value, lang, kind, document, number in said:
        term = Term.uri(uri) if uri is not None else Term.literal(value, lang, kind)
        if document == GLOBAL_DOCUMENT:
            assert (property_, term) not in content[subject], "a statement is there twice"
            content[subject].add((property_, term))
        else:
            local[documents[document]].add(Statement(subject, property_, term))
        if property_ in (SIZE, LABEL):
            typed.add((property_, value, number))
    return Content(content, {row.uri for row in rows if row.selected}, local, typed, suspended)


def assert_cache_holds(cache: Cache, state: State, local: dict[str, set[Statement]]) -> None:
    """Check that the cache holds `state` and these local documents: statements, counts, sums, types."""
    found = content_of(cache)
    assert found.content == {uri: set(said) for uri, said in state.content.items()}
    assert found.selected == state.selected
    assert found.suspended == state.suspended
    assert found.local == local
    assert find_problems(cache) == []
    assert checksum(cache)[1] == state.sums()
    typing = make_cache_schema(state.schema, 0).typing
    for name, value, number in found.typed:
        right = typing.typed_values(name, Term.literal(value))[0]
        assert number == (None if right is None else sort_key(right)), (name, value)
