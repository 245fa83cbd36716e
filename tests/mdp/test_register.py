"""Registration: conditions, limits, long texts, and a cost that does not grow with the store."""

from __future__ import annotations

import random
import string
from contextlib import ExitStack
from typing import Any

import pytest
from sqlalchemy import Connection

from mdv.errors import Forbidden, InvalidDocument, NotFound, PreconditionFailed
from mdv.inspect.sql.documents import StoredStatements, list_documents, read_document, read_document_statements
from mdv.inspect.sql.resources import list_resource_documents
from mdv.mdp.register import Prepared, RegistrationOutcome, prepared
from mdv.mdp.schemas import build_schema
from mdv.mdp.write_limits import is_below_prefix
from mdv.model import Document, Statement, Term
from tests.support.mdp import Mdp
from tests.support.sent_sql import executed

D, E = "http://d/1", "http://d/2"


@pytest.fixture
def store(mdp: Mdp) -> Mdp:
    mdp.put_schema("<> mdv:world mdv:open .")
    return mdp


def _said(connection: Connection, uri: str) -> list[Statement]:
    found = StoredStatements(uri).few(connection, 1000)
    assert found is not None
    return found


# -- results of a registration


def test_a_registration_returns_its_counts(store: Mdp) -> None:
    first = store.put_one(D, "<#a> :p 1 . <#b> :p 1 . <#c> :p 1 .")
    assert first == RegistrationOutcome(D, 1, 2, inserted=3, created=True)
    second = store.put_one(D, "<#b> :p 2 . <#c> :p 1 . <#d> :p 1 .")
    assert second == RegistrationOutcome(D, 2, 3, inserted=1, updated=1, deleted=1, unchanged=1)
    assert store.put_one(D, None) == RegistrationOutcome(D, 3, 4, deleted=3)
    assert store.put_one(D, "<#a> :p 1 .") == RegistrationOutcome(D, 4, 5, inserted=1, created=True)


def test_deleting_a_document_keeps_the_statements_of_others(store: Mdp) -> None:
    store.put({D: "<http://r> :p 1, 2 .", E: "<http://r> :p 2, 3 ."})
    assert store.put_one(D, None) == RegistrationOutcome(D, 2, 3, updated=1)
    with store.engine.connect() as connection:
        assert sorted(s.object.value for s in _said(connection, "http://r")) == ["2", "3"]
        assert list_resource_documents(connection, "http://r") == [E]
        assert [row["uri"] for row in list_documents(connection, "", 10)] == [E]
        assert list_documents(connection, E, 10) == []


def test_a_missing_document_cannot_be_deleted(store: Mdp) -> None:
    with pytest.raises(NotFound, match="There is no document http://d/1"):
        store.put_one(D, None)
    store.put_one(D, "<#a> :p 1 .")
    store.put_one(D, None)
    with pytest.raises(NotFound):
        store.put_one(D, None)


def test_an_error_in_a_batch_does_not_affect_the_others(store: Mdp) -> None:
    answers = store.put({D: None, E: "<#a> :p 1 ."})
    assert isinstance(answers[0], NotFound)
    assert answers[1] == RegistrationOutcome(E, 1, 2, inserted=1, created=True)


def test_a_batch_of_only_errors_takes_no_position(store: Mdp) -> None:
    store.put({D: None, E: None})
    assert store.one("select position from mdp_state") == 1


# -- conditions


def refused(store: Mdp, turtle: str | None = "<#a> :p 9 .", **conditions: Any) -> bool:
    before = store.one("select position from mdp_state")
    try:
        store.put_one(D, turtle, **conditions)
    except PreconditionFailed:
        assert store.one("select position from mdp_state") == before
        return True
    return False


def test_if_match_requires_the_stored_version(store: Mdp) -> None:
    assert refused(store, if_match=("*",))
    assert refused(store, if_match=("1",))
    store.put_one(D, "<#a> :p 1 .")
    assert refused(store, if_match=("2",))
    assert refused(store, if_match=())
    assert not refused(store, if_match=("7", "1"))
    assert not refused(store, "<#a> :p 10 .", if_match=("*",))
    assert refused(store, None, if_match=("1",))
    assert not refused(store, None, if_match=("3",))
    assert refused(store, if_match=("4",)), "a deleted document has no version to match"


def test_if_none_match_requires_another_version_or_none(store: Mdp) -> None:
    assert not refused(store, if_none_match=("*",))
    assert refused(store, if_none_match=("*",))
    assert refused(store, if_none_match=("1", "5"))
    assert not refused(store, "<#a> :p 10 .", if_none_match=("5",))
    store.put_one(D, None)
    assert not refused(store, if_none_match=("*",))


def test_a_precondition_is_checked_for_an_identical_document_too(store: Mdp) -> None:
    store.put_one(D, "<#a> :p 1 .")
    assert refused(store, "<#a> :p 1 .", if_match=("2",))
    assert not refused(store, "<#a> :p 1 .", if_match=("1",))


def test_only_one_of_two_writers_with_the_same_version_succeeds(store: Mdp) -> None:
    store.put_one(D, "<#a> :p 1 .")
    one = store.prepare(D, "<#a> :p 2 .", if_match=("1",))
    two = store.prepare(D, "<#a> :p 3 .", if_match=("1",))
    assert isinstance(store.register_batch([one])[0], RegistrationOutcome)
    assert isinstance(store.register_batch([two])[0], PreconditionFailed)


def test_a_token_describes_only_resources_within_its_prefixes(store: Mdp) -> None:
    store.prepare(D, "<http://r/a> :p [ :q 1 ] .", resource_prefixes=("http://r/",))
    with pytest.raises(Forbidden, match=r"http://other/a and 1 other"):
        store.prepare(D, "<http://r/a> :p 1 . <http://other/a> :p 1 . <http://rx/a> :p 1 .",
                      resource_prefixes=("http://r",))  # fmt: skip
    with pytest.raises(Forbidden):
        store.prepare(D, "<http://r/a> :p 1 .", resource_prefixes=())


def test_a_token_removes_only_statements_about_resources_within_its_prefixes(store: Mdp) -> None:
    store.put({D: "<http://r/a> :p 1 ; :q [ :p 2 ] . <http://other/b> :p 3 . <http://other/c> :p 4 .",
               E: "<http://r/e> :p 1 ; :q [ :p 2 ] ."})  # fmt: skip
    own = {"resource_prefixes": ("http://r/",)}
    refused = store.register_batch([
        store.prepare(D, "<http://r/a> :p 5 .", **own),
        store.prepare(E, "<http://r/e> :p 6 .", **own),
    ])  # fmt: skip
    assert isinstance(refused[0], Forbidden) and isinstance(refused[1], RegistrationOutcome), "each has its own result"
    assert "remove statements about http://other/b and 1 other resources" in refused[0].detail
    (refused_deletion,) = store.register_batch([store.prepare(D, None, **own)])
    assert isinstance(refused_deletion, Forbidden) and "http://other/b" in refused_deletion.detail
    with store.engine.connect() as connection:
        assert "1" in [s.object.value for s in _said(connection, "http://r/a")]
        assert [s.object.value for s in _said(connection, "http://other/b")] == ["3"]
    (deleted,) = store.register_batch([store.prepare(E, None, **own)])
    assert isinstance(deleted, RegistrationOutcome), "its own blank nodes are removed with it"


def test_removals_are_checked_only_for_tokens_with_resource_prefixes(
    store: Mdp, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_one(D, "<http://r/a> :p 1 .")
    with executed(monkeypatch) as free:
        store.put_one(D, "<http://r/a> :p 2 .")
    with executed(monkeypatch) as limited:
        store.put_one(D, "<http://r/a> :p 3 .", resource_prefixes=("http://r/",))
    lookups = [sum("DISTINCT filter_data.resource_id" in statement for statement in run) for run in (free, limited)]
    assert lookups == [0, 1]


@pytest.mark.parametrize("segment", ["..", ".", "%2e%2e", "%2E.", ".%2e", "%2E"])
def test_uris_with_dot_segments_are_below_no_prefix(store: Mdp, segment: str) -> None:
    for uri in (f"http://r/x/{segment}/secret", f"http://r/x/{segment}", f"http://r/x%2F{segment}%2fsecret"):
        assert not is_below_prefix(uri, ["http://r/x/"])
        with pytest.raises(Forbidden, match=r"'\.' or '\.\.' segment"):
            store.prepare(D, f"<{uri}> :p 1 .", resource_prefixes=("http://r/x/",))
    for uri in (f"http://r/x/a{segment}b", f"http://r/x/a?b=/{segment}/", f"http://r/x/a#/{segment}/"):
        assert is_below_prefix(uri, ["http://r/x/"])


@pytest.mark.parametrize(
    ("uri", "prefix", "inside"),
    [
        ("http://a.org", "http://a.org", True),
        ("http://a.org/x", "http://a.org", True),
        ("http://a.org#x", "http://a.org", True),
        ("http://a.org?x", "http://a.org", True),
        ("http://a.org.evil/x", "http://a.org", False),
        ("http://a.org@evil/x", "http://a.org", False),
        ("http://a.org:80/x", "http://a.org", False),
        ("http://a.org/docs2", "http://a.org/docs", False),
        ("http://a.org/docs/2", "http://a.org/docs", True),
        ("http://a.org/", "http://a.org/docs", False),
        ("urn:x:1", "urn:x:", True),
        ("HTTP://a.org/x", "http://a.org", False),
    ],
)
def test_a_prefix_matches_only_whole_parts_of_a_uri(uri: str, prefix: str, inside: bool) -> None:
    assert is_below_prefix(uri, [prefix]) is inside


# -- sizes


def noise(length: int, seed: int = 1) -> str:
    return "".join(random.Random(seed).choices(string.ascii_letters + string.digits, k=length))


@pytest.mark.parametrize("length", [8_193, 12_000, 1_048_576])
def test_long_texts_are_stored_completely(store: Mdp, length: int) -> None:
    text = noise(length - 4) + "ü\U0001f600ß" + " "
    store.put_one(D, f"<#a> :p '{text}', '{text}x' ; :q '{text}'@en .")
    store.put_one(E, f"<{D}#a> :p '{text}' .")
    with store.engine.connect() as connection:
        found = _said(connection, D + "#a")
    assert sorted((s.property[-1], len(s.object.value)) for s in found) == [
        ("p", length), ("p", length + 1), ("q", length),
    ]  # fmt: skip
    assert text in {s.object.value for s in found}
    assert store.put_one(D, f"<#a> :p '{text}', '{text}x' ; :q '{text}'@en .").version == 1
    assert store.put_one(D, f"<#a> :p '{text}' .").updated == 1
    assert store.one("select count(*) from statement_log where operation = 'delete'") == 2


def test_random_names_of_2048_bytes_are_stored_and_found(store: Mdp) -> None:
    def name(seed: int) -> str:
        return "http://long/" + noise(2048 - len("http://long/"), seed)

    document, subject, name_, target, datatype, class_ = map(name, range(6))
    text = f"<{subject}> <{name_}> <{target}>, 'x'^^<{datatype}> ; a <{class_}> ; :p [ :q 1 ] ."
    assert store.put_one(document, text).inserted == 2
    with store.engine.connect() as connection:
        info = read_document(connection, document)
        assert info is not None
        found = read_document_statements(connection, info)
        assert {target, "x", class_} <= {s.object.value for s in _said(connection, subject)}
    assert {datatype} <= {s.object.datatype for s in found}
    assert store.put_one(document, text).version == 1
    with pytest.raises(InvalidDocument, match=r"longer than 2,048 bytes"):
        store.prepare(D, f"<{subject}x> :p 1 .")


# -- cost


def books(count: int, version: int = 1, first: int = 0, size: int = 5) -> list[Prepared]:
    """Documents that share an agent, refer to each other and differ between versions."""
    batch = []
    for n in range(first, first + count):
        uri = f"http://books/{n}"
        said = [Statement(f"{uri}#{i}", "http://v/p", Term.literal(f"{version} {i}")) for i in range(size)]
        said += [Statement(f"{uri}#{i}", "http://v/next", Term.uri(f"http://books/{n + 1}#{i}")) for i in range(size)]
        said.append(Statement("http://agents/1", "http://v/name", Term.literal("Austen")))
        batch.append(prepared(Document(uri, tuple(sorted(said))), build_schema(1, [], {})))
    return batch


def test_the_number_of_sql_statements_does_not_depend_on_the_batch(store: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    store.register_batch(books(100))
    numbers = set()
    for count, version in ((1, 2), (100, 3), (1, 4), (100, 5)):
        with executed(monkeypatch) as sent:
            store.register_batch(books(count, version))
        numbers.add(len(sent))
    assert len(numbers) == 1
    assert numbers.pop() < 50


@pytest.mark.parametrize("analysed", [True, False], ids=["analysed", "plans made while it was small"])
def test_no_registration_scans_a_whole_table(store: Mdp, analysed: bool) -> None:
    tables = ("filter_data", "resources", "documents", "document_versions", "filter_data_history")

    def scans() -> list[tuple[str, int]]:
        with ExitStack() as stack:
            # Each pooled connection keeps its own counts until it flushes them.
            for connection in [stack.enter_context(store.engine.connect()) for _ in range(3)]:
                connection.exec_driver_sql("select pg_stat_force_next_flush()")
                connection.commit()
            rows = connection.exec_driver_sql(
                "select relname, seq_scan from pg_stat_user_tables where relname = any(%s) order by relname",
                (list(tables),),
            )
            return [tuple(row) for row in rows]

    def analyse() -> None:
        with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("vacuum analyze")

    store.register_batch(books(2, first=5000))
    analyse()
    for version in range(2, 12):
        store.register_batch(books(2, version, first=5000))
    for first in range(0, 1000, 250):
        store.register_batch(books(250, first=first, size=10))  # 21 statements each
    if analysed:
        analyse()
    before = scans()
    store.register_batch(books(1, 2))
    store.register_batch(books(1, 1, first=3000))
    store.register_batch([Prepared("http://books/1", None, 1)])
    assert scans() == before
    store.register_batch(books(100, 3, first=50, size=8))
    store.register_batch(books(100, 1, first=2000))
    # Of a thousand documents, a hundred may be found by a sequential scan; their statements may not.
    assert [(name, n) for name, n in scans() if name != "documents"] == [b for b in before if b[0] != "documents"]
