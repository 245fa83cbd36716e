"""The log: every visible insertion and deletion of a statement, with its transaction and its cause."""

from __future__ import annotations

import pytest

from mdv.inspect.sql.documents import list_versions, read_document, read_document_statements
from mdv.mdp.register import RegistrationOutcome
from tests.support.mdp import Mdp

ONE, TWO, THREE = "http://d/1", "http://d/2", "http://d/3"
R = "@prefix r: <http://r/> . "


@pytest.fixture
def store(mdp: Mdp) -> Mdp:
    """An MDP with an open world, which is its first transaction."""
    mdp.put_schema("<> mdv:world mdv:open .")
    return mdp


def log(mdp: Mdp, after: int = 1) -> list[tuple[int, str, str, str, str]]:
    """Return position, operation, cause, document, and the statement in short form."""
    rows = mdp.rows(
        "select position, operation, cause, document, resource, property, coalesce(target, value) from statement_log"
        " where position > :after order by position, operation, resource, property, 7",
        after=after,
    )
    return [
        (position, operation, cause, document, " ".join(part.rsplit("/", 1)[1] if "/" in part else part for part in s))
        for position, operation, cause, document, *s in rows
    ]


def test_a_first_registration_is_logged_as_insertions(store: Mdp) -> None:
    store.put_one(ONE, R + "r:a :p 'x' ; :q r:b .")
    assert log(store) == [(2, "insert", "register", ONE, "a p x"), (2, "insert", "register", ONE, "a q b")]


def test_an_update_is_logged_by_its_difference(store: Mdp) -> None:
    store.put_one(ONE, R + "r:a :p 'x', 'y' .")
    store.put_one(ONE, R + "r:a :p 'y', 'z' .")
    assert log(store, 2) == [(3, "delete", "register", ONE, "a p x"), (3, "insert", "register", ONE, "a p z")]


def test_a_deletion_is_logged_with_its_cause(store: Mdp) -> None:
    store.put_one(ONE, R + "r:a :p 'x' .")
    store.put_one(ONE, None)
    assert log(store, 2) == [(3, "delete", "delete", ONE, "a p x")]


def test_a_statement_also_made_by_another_document_is_not_logged(store: Mdp) -> None:
    store.put_one(ONE, R + "r:a :p 'x' .")
    store.put_one(TWO, R + "r:a :p 'x', 'y' .")
    assert log(store, 2) == [(3, "insert", "register", TWO, "a p y")]
    store.put_one(ONE, None)
    assert log(store, 3) == []
    store.put_one(TWO, None)
    assert log(store, 4) == [(5, "delete", "delete", TWO, "a p x"), (5, "delete", "delete", TWO, "a p y")]


def test_a_statement_made_by_two_documents_of_a_batch_is_logged_once(store: Mdp) -> None:
    store.put({ONE: R + "r:a :p 'x' .", TWO: R + "r:a :p 'x' ."})
    assert [entry[4] for entry in log(store)] == ["a p x"]
    store.put({ONE: None, TWO: None})
    assert [entry[1:] for entry in log(store, 2)] == [("delete", "delete", ONE, "a p x")]


def test_a_statement_that_moves_between_documents_is_not_logged(store: Mdp) -> None:
    store.put_one(ONE, R + "r:a :p 'x' .")
    moved = store.put({ONE: None, TWO: R + "r:a :p 'x' ."})
    assert log(store, 2) == []
    assert [(o.inserted, o.updated, o.deleted, o.unchanged) for o in outcomes(moved)] == [(0, 0, 0, 0), (0, 0, 0, 1)]


def test_a_resource_whose_last_statement_moved_is_updated_not_inserted(store: Mdp) -> None:
    store.put_one(ONE, R + "r:a :p 'x' .")
    answers = outcomes(store.put({ONE: None, TWO: R + "r:a :p 'x', 'y' ."}))
    assert [(o.inserted, o.updated, o.deleted) for o in answers] == [(0, 0, 0), (0, 1, 0)]


def test_a_resource_that_keeps_a_moved_statement_is_updated_not_deleted(store: Mdp) -> None:
    store.put_one(ONE, R + "r:a :p 'x', 'y' .")
    answers = outcomes(store.put({ONE: None, TWO: R + "r:a :p 'x' ."}))
    assert [(o.inserted, o.updated, o.deleted, o.unchanged) for o in answers] == [(0, 1, 0, 0), (0, 0, 0, 1)]


def outcomes(answers: list[object]) -> list[RegistrationOutcome]:
    assert all(isinstance(answer, RegistrationOutcome) for answer in answers)
    return answers  # type: ignore[return-value]


def test_an_identical_registration_takes_no_position_and_writes_nothing(store: Mdp) -> None:
    first = store.put_one(ONE, R + "r:a :p 'x' ; :q [ :p 'y' ] .")
    again = store.put_one(ONE, R + "r:a :q _:n ; :p 'x' . _:n :p 'y' .")
    assert (again.version, again.position) == (first.version, first.position)
    assert (again.inserted, again.updated, again.deleted, again.unchanged, again.created) == (0, 0, 0, 2, False)
    assert store.one("select max(position) from transactions") == first.position
    assert store.one("select count(*) from document_versions") == 1


def test_an_identical_document_in_a_batch_does_not_affect_the_others(store: Mdp) -> None:
    store.put_one(ONE, R + "r:a :p 'x' .")
    same, new = outcomes(store.put({ONE: R + "r:a :p 'x' .", TWO: R + "r:b :p 'x' ."}))
    assert (same.version, same.position, new.version, new.position) == (1, 2, 1, 3)


def test_statements_are_distinguished_by_language_and_datatype(store: Mdp) -> None:
    store.put_one(ONE, R + "r:a :p 'x', 'x'@en, 'x'@de, 'x'^^:t, r:x .")
    store.put_one(ONE, R + "r:a :p 'x'@en, 'x'^^:t .")
    rows = store.rows("select operation, target, lang, datatype from statement_log where position = 3")
    assert sorted(rows, key=repr) == [
        ("delete", "http://r/x", None, None), ("delete", None, "de", None), ("delete", None, None, None),
    ]  # fmt: skip


def test_every_version_reads_back_as_it_was_registered(store: Mdp) -> None:
    texts = [R + "r:a :p 'x' .", R + "r:a :p 'x', 'y' . r:b :p 'x' .", None, R + "r:b :p 'x' .", R + "r:a :p 'x' ."]
    for text in texts:
        store.put_one(ONE, text)
        store.put_one(TWO, R + f"r:a :p 'other {len(text or '')}', 'x' .")
    with store.engine.connect() as connection:
        for number, text in enumerate(texts, 1):
            document = read_document(connection, ONE, number)
            assert document is not None
            assert document.present is (text is not None)
            item = store.prepare(ONE, text)
            wanted = list(item.document.statements) if item.document else []
            assert sorted(read_document_statements(connection, document), key=repr) == sorted(wanted, key=repr)
        assert read_document(connection, ONE, len(texts) + 1) is None
        assert read_document(connection, "http://d/none") is None


def test_versions_are_listed_newest_first_with_their_counts(store: Mdp) -> None:
    store.put_one(ONE, R + "r:a :p 'x' . r:b :p 'x' .")
    store.put_one(ONE, R + "r:a :p 'y' . r:c :p 'x' .")
    store.put_one(ONE, None)
    with store.engine.connect() as connection:
        listed = list_versions(connection, ONE, 100, 100)
        assert [v.version for v in list_versions(connection, ONE, 3, 1)] == [2]
    assert [(v.version, v.present, v.inserted, v.updated, v.deleted, v.unchanged) for v in listed] == [
        (3, False, 0, 0, 2, 0), (2, True, 1, 1, 1, 0), (1, True, 2, 0, 0, 0),
    ]  # fmt: skip


def test_a_schema_change_is_a_transaction_without_log_entries(store: Mdp) -> None:
    store.put_one(ONE, R + "r:a :p '5' .")
    outcome = store.put_schema("<> mdv:world mdv:open . :p rdfs:range xsd:integer .")
    assert outcome.position == 3
    assert store.rows("select cause from transactions order by position") == [("schema",), ("documents",), ("schema",)]
    assert log(store, 2) == []
