"""Registration: conditions, limits, long texts, and a cost that does not grow with what is stored."""

from __future__ import annotations

import random
import string
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from counted import executed

from mdv.db.read import document_statements, list_documents, read_document, resource_documents, resource_statements
from mdv.errors import Forbidden, InvalidDocument, NotFound, PreconditionFailed
from mdv.mdp.register import Outcome, Prepared, prepared, within
from mdv.mdp.schemas import in_force
from mdv.model import Document, Statement, Term

if TYPE_CHECKING:
    from conftest import Mdp

D, E = "http://d/1", "http://d/2"


@pytest.fixture
def store(mdp: Mdp) -> Mdp:
    mdp.put_schema("<> mdv:world mdv:open .")
    return mdp


# -- what a registration answers


def test_a_registration_tells_what_it_did(store: Mdp) -> None:
    first = store.put_one(D, "<#a> :p 1 . <#b> :p 1 . <#c> :p 1 .")
    assert first == Outcome(D, 1, 2, inserted=3, created=True)
    second = store.put_one(D, "<#b> :p 2 . <#c> :p 1 . <#d> :p 1 .")
    assert second == Outcome(D, 2, 3, inserted=1, updated=1, deleted=1, unchanged=1)
    assert store.put_one(D, None) == Outcome(D, 3, 4, deleted=3)
    assert store.put_one(D, "<#a> :p 1 .") == Outcome(D, 4, 5, inserted=1, created=True)


def test_deleting_a_document_leaves_what_others_say(store: Mdp) -> None:
    store.put({D: "<http://r> :p 1, 2 .", E: "<http://r> :p 2, 3 ."})
    assert store.put_one(D, None) == Outcome(D, 2, 3, updated=1)
    with store.engine.connect() as connection:
        assert sorted(s.object.value for s in resource_statements(connection, "http://r")) == ["2", "3"]
        assert resource_documents(connection, "http://r") == [E]
        assert [row["uri"] for row in list_documents(connection, "", 10)] == [E]
        assert list_documents(connection, E, 10) == []


def test_a_document_that_is_not_there_cannot_be_deleted(store: Mdp) -> None:
    with pytest.raises(NotFound, match="No document http://d/1 is registered"):
        store.put_one(D, None)
    store.put_one(D, "<#a> :p 1 .")
    store.put_one(D, None)
    with pytest.raises(NotFound):
        store.put_one(D, None)


def test_one_bad_among_many_leaves_the_others_alone(store: Mdp) -> None:
    answers = store.put({D: None, E: "<#a> :p 1 ."})
    assert isinstance(answers[0], NotFound)
    assert answers[1] == Outcome(E, 1, 2, inserted=1, created=True)


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


def test_if_match_wants_the_stored_version(store: Mdp) -> None:
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


def test_if_none_match_wants_another_version_or_none(store: Mdp) -> None:
    assert not refused(store, if_none_match=("*",))
    assert refused(store, if_none_match=("*",))
    assert refused(store, if_none_match=("1", "5"))
    assert not refused(store, "<#a> :p 10 .", if_none_match=("5",))
    store.put_one(D, None)
    assert not refused(store, if_none_match=("*",))


def test_a_condition_holds_for_an_identical_document_too(store: Mdp) -> None:
    store.put_one(D, "<#a> :p 1 .")
    assert refused(store, "<#a> :p 1 .", if_match=("2",))
    assert not refused(store, "<#a> :p 1 .", if_match=("1",))


def test_of_two_who_saw_the_same_version_one_wins(store: Mdp) -> None:
    store.put_one(D, "<#a> :p 1 .")
    one = store.prepare(D, "<#a> :p 2 .", if_match=("1",))
    two = store.prepare(D, "<#a> :p 3 .", if_match=("1",))
    assert isinstance(store.register_batch([one])[0], Outcome)
    assert isinstance(store.register_batch([two])[0], PreconditionFailed)


def test_a_token_describes_only_resources_within_its_prefixes(store: Mdp) -> None:
    store.prepare(D, "<http://r/a> :p [ :q 1 ] .", resource_prefixes=("http://r/",))
    with pytest.raises(Forbidden, match=r"http://other/a and 1 other"):
        store.prepare(D, "<http://r/a> :p 1 . <http://other/a> :p 1 . <http://rx/a> :p 1 .",
                      resource_prefixes=("http://r",))  # fmt: skip
    with pytest.raises(Forbidden):
        store.prepare(D, "<http://r/a> :p 1 .", resource_prefixes=())


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
def test_a_prefix_ends_where_a_part_of_a_uri_ends(uri: str, prefix: str, inside: bool) -> None:
    assert within(uri, [prefix]) is inside


# -- sizes


def noise(length: int, seed: int = 1) -> str:
    return "".join(random.Random(seed).choices(string.ascii_letters + string.digits, k=length))


@pytest.mark.parametrize("length", [8_193, 12_000, 1_048_576])
def test_long_texts_are_stored_whole(store: Mdp, length: int) -> None:
    text = noise(length - 4) + "ü\U0001f600ß" + " "
    store.put_one(D, f"<#a> :p '{text}', '{text}x' ; :q '{text}'@en .")
    store.put_one(E, f"<{D}#a> :p '{text}' .")
    with store.engine.connect() as connection:
        found = resource_statements(connection, D + "#a")
    assert sorted((s.property[-1], len(s.object.value)) for s in found) == [
        ("p", length), ("p", length + 1), ("q", length),
    ]  # fmt: skip
    assert text in {s.object.value for s in found}
    assert store.put_one(D, f"<#a> :p '{text}', '{text}x' ; :q '{text}'@en .").version == 1
    assert store.put_one(D, f"<#a> :p '{text}' .").updated == 1
    assert store.one("select count(*) from statement_log where operation = 'delete'") == 2


def test_names_of_2048_bytes_of_noise_are_stored_and_found(store: Mdp) -> None:
    def name(seed: int) -> str:
        return "http://long/" + noise(2048 - len("http://long/"), seed)

    document, subject, name_, target, datatype, class_ = map(name, range(6))
    text = f"<{subject}> <{name_}> <{target}>, 'x'^^<{datatype}> ; a <{class_}> ; :p [ :q 1 ] ."
    assert store.put_one(document, text).inserted == 2
    with store.engine.connect() as connection:
        info = read_document(connection, document)
        assert info is not None
        found = document_statements(connection, info)
        assert {target, "x", class_} <= {s.object.value for s in resource_statements(connection, subject)}
    assert {datatype} <= {s.object.datatype for s in found}
    assert store.put_one(document, text).version == 1
    with pytest.raises(InvalidDocument, match=r"longer than 2,048 bytes"):
        store.prepare(D, f"<{subject}x> :p 1 .")


# -- cost


def books(count: int, version: int = 1, first: int = 0, size: int = 5) -> list[Prepared]:
    """Documents that share an agent, refer to each other and differ from version to version."""
    batch = []
    for n in range(first, first + count):
        uri = f"http://books/{n}"
        said = [Statement(f"{uri}#{i}", "http://v/p", Term.literal(f"{version} {i}")) for i in range(size)]
        said += [Statement(f"{uri}#{i}", "http://v/next", Term.uri(f"http://books/{n + 1}#{i}")) for i in range(size)]
        said.append(Statement("http://agents/1", "http://v/name", Term.literal("Austen")))
        batch.append(prepared(Document(uri, tuple(sorted(said))), in_force(1, [], {})))
    return batch


def test_the_number_of_statements_does_not_depend_on_the_batch(store: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    store.register_batch(books(100))
    numbers = set()
    for count, version in ((1, 2), (100, 3), (1, 4), (100, 5)):
        with executed(monkeypatch) as sent:
            store.register_batch(books(count, version))
        numbers.add(len(sent))
    assert len(numbers) == 1
    assert numbers.pop() < 50


@pytest.mark.parametrize("analysed", [True, False], ids=["analysed", "plans made while it was small"])
def test_no_run_reads_a_whole_table_of_what_is_stored(store: Mdp, analysed: bool) -> None:
    tables = ("filter_data", "resources", "documents", "document_versions", "filter_data_history")

    def scans() -> list[tuple[str, int]]:
        with ExitStack() as stack:
            # Each pooled connection keeps its own counts until it is told to give them up.
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
    # Of a thousand documents, a hundred may be looked up by reading them all; not so of what they say.
    assert [(name, n) for name, n in scans() if name != "documents"] == [b for b in before if b[0] != "documents"]
