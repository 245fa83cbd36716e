"""What a cache holds, read row by row, to be compared with what it should hold."""

from __future__ import annotations

from typing import NamedTuple

from naive_mdp import LABEL, SIZE, State
from sqlalchemy import select

from mdv.db.cache_tables import GLOBAL, local_documents, resources, statements, vocabulary
from mdv.lmr.checksum import checksum
from mdv.lmr.collect import check
from mdv.lmr.schema import in_force
from mdv.lmr.store import Cache
from mdv.model import Statement, Term
from mdv.rdf.sortkey import sort_key


class Content(NamedTuple):
    """Every row, spelled out."""

    content: dict[str, set[tuple[str, Term]]]
    selected: set[str]
    local: dict[str, set[Statement]]
    typed: set[tuple[str, str, str | None]]


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
    content: dict[str, set[tuple[str, Term]]] = {row.uri: set() for row in rows if row.present}
    local: dict[str, set[Statement]] = {uri: set() for uri in documents.values()}
    typed: set[tuple[str, str, str | None]] = set()
    for subject, property_, uri, value, lang, kind, document, number in said:
        term = Term.uri(uri) if uri is not None else Term.literal(value, lang, kind)
        if document == GLOBAL:
            assert (property_, term) not in content[subject], "a statement is there twice"
            content[subject].add((property_, term))
        else:
            local[documents[document]].add(Statement(subject, property_, term))
        if property_ in (SIZE, LABEL):
            typed.add((property_, value, number))
    return Content(content, {row.uri for row in rows if row.selected}, local, typed)


def assert_cache_holds(cache: Cache, state: State, local: dict[str, set[Statement]]) -> None:
    """The cache holds what `state` says and these local documents: statement by statement, counts, sums, types."""
    found = content_of(cache)
    assert found.content == {uri: set(said) for uri, said in state.content.items()}
    assert found.selected == state.selected
    assert found.local == local
    assert check(cache) == []
    assert checksum(cache)[1] == state.sums()
    typing = in_force(state.schema, 0).typing
    for name, value, number in found.typed:
        right = typing.typed_values(name, Term.literal(value))[0]
        assert number == (None if right is None else sort_key(right)), (name, value)
