"""Edits of one document: their laws, their cause, what they may change, and their cost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from mdv.cause import CAUSE_KINDS, PROGRAM, REGISTRATION, RULE, UPDATE, Cause
from mdv.db.pipeline import PendingResult, Pipeline
from mdv.errors import BadRequest, Forbidden, InvalidDocument, NotFound, PreconditionFailed
from mdv.failpoints import AFTER_EDIT
from mdv.inspect.sql.documents import StoredStatements, list_versions, read_document
from mdv.mdp.edit import Edit
from mdv.mdp.edit_document import MAX_EDITS, DocumentEdit, edit_document, read_edits
from mdv.mdp.register import Preconditions, RegistrationOutcome, register
from mdv.mdp.transaction import Transaction
from mdv.mdp.write_limits import WriteLimits
from mdv.model import XSD, Statement, Term
from tests.support.mdp import Mdp
from tests.support.sent_sql import executed

D, E = "http://d/1", "http://d/2"
A, B = D + "#a", D + "#b"


@pytest.fixture
def store(mdp: Mdp) -> Mdp:
    mdp.put_schema("<> mdv:world mdv:open . :one rdfs:range xsd:integer . :many mdv:setValued true .")
    return mdp


def value(subject: str, name: str, text: str, **more: str) -> Statement:
    return Statement(subject, "http://v/" + name, Term.literal(text, **more))


def edit(
    store: Mdp,
    add: tuple[Statement, ...] = (),
    remove: tuple[Statement, ...] = (),
    uri: str = D,
    limits: WriteLimits | None = None,
    **conditions: tuple[str, ...],
) -> RegistrationOutcome:
    item = DocumentEdit(uri, add, remove, Preconditions(**conditions), limits or WriteLimits(), "user anna")
    with store.engine.begin() as connection:
        return edit_document(connection, item, store.provider)


def statements(store: Mdp, uri: str = D) -> list[Statement]:
    with store.engine.connect() as connection:
        document = read_document(connection, uri)
        assert document is not None
        return sorted(StoredStatements(document).few(connection, 1000) or [])


def history(store: Mdp, uri: str = D) -> list[tuple[int, str, str | None, str | None]]:
    with store.engine.connect() as connection:
        return [(v.version, v.cause, v.agent, v.by) for v in list_versions(connection, uri, 2**31 - 1, 100)]


def test_an_edit_adds_and_removes_statements_and_makes_a_version(store: Mdp) -> None:
    store.put_one(D, "<#a> :p 'x' ; :q 'y' . <#b> :p 'x' .")
    done = edit(store, (value(A, "p", "z"), value(D + "#c", "p", "x")), (value(A, "p", "x"), value(B, "p", "x")))
    assert done == RegistrationOutcome(D, 2, 3, inserted=1, updated=1, deleted=1, present=True)
    assert statements(store) == [value(A, "p", "z"), value(A, "q", "y"), value(D + "#c", "p", "x")]
    assert history(store) == [(2, "update", None, "user anna"), (1, "registration", None, None)]


def test_edits_that_change_nothing_are_dropped(store: Mdp) -> None:
    store.put_one(D, "<#a> :p 'x' .")
    done = edit(store, (value(A, "p", "x"),), (value(A, "p", "absent"), value("http://other", "p", "x")))
    assert (done.version, done.position, done.inserted + done.updated + done.deleted) == (1, 2, 0)
    assert edit(store, (value(A, "p", "y"),)).position == 3
    assert [version for version, *_ in history(store)] == [2, 1]


def test_a_statement_that_another_document_contains_can_be_added_and_removed(store: Mdp) -> None:
    store.put({D: "<http://r> :p 'x' .", E: "<http://r> :p 'x' ; :q 'y' ."})
    shared = value("http://r", "p", "x")
    assert edit(store, (), (shared,), uri=E) == RegistrationOutcome(E, 2, 3, unchanged=1, present=True)
    assert statements(store, D) == [shared]
    assert edit(store, (shared,), (), uri=E).version == 3


def test_a_resource_that_another_document_describes_stays_at_lmrs(store: Mdp) -> None:
    store.put_schema("<> mdv:world mdv:open . :C a rdfs:Class . :many mdv:setValued true .")
    lmr = store.create_lmr("shared")
    store.subscribe(lmr, "search C c register c where c.many? = 'x'")
    store.put({D: "<http://r> a :C ; :many 'x' .", E: "<http://r> a :C ; :many 'x' ."})
    cursor = store.feed(lmr).cursor
    shared = value("http://r", "many", "x")
    for add, remove in (((), (shared,)), ((shared,), ())):
        edit(store, add, remove)
        page = store.feed(lmr, cursor)
        assert page.events == () and store.rows("select 1 from lmr_resources where lmr_id = :lmr", lmr=lmr.id) == [(1,)]


def test_a_document_without_statements_is_absent_and_its_versions_continue(store: Mdp) -> None:
    store.put_one(D, "<#a> :p 'x' .")
    assert edit(store, (), (value(A, "p", "x"),)) == RegistrationOutcome(D, 2, 3, deleted=1, present=False)
    with pytest.raises(NotFound, match="was deleted in version 2"):
        edit(store, (value(A, "p", "x"),))
    assert store.put_one(D, "<#a> :p 'x' .").version == 3


def test_a_registration_has_the_last_word_and_an_identical_one_changes_nothing(store: Mdp) -> None:
    store.put_one(D, "<#a> :p 'x' .")
    edit(store, (value(A, "p", "y"),))
    same = store.put_one(D, "<#a> :p 'x', 'y' .")
    assert (same.version, same.position) == (2, 3)
    assert store.put_one(D, "<#a> :p 'x' .").version == 3
    assert statements(store) == [value(A, "p", "x")]


@pytest.mark.parametrize(
    ("add", "remove", "words"),
    [
        ((value(A, "one", "2"),), (), "one has 2 values in one document"),
        ((value(A, "one", "text"),), (value(A, "one", "1"),), "text"),
        ((value(D + "#_:x", "p", "x"),), (), "is a blank node"),
        ((), (value(D + "#_:x", "p", "x"),), "is a blank node"),
        ((Statement(A, "http://v/p", Term.uri(D + "#_:x")),), (), "is a blank node"),
    ],
)
def test_an_edit_that_would_leave_the_document_invalid_is_refused_whole(
    store: Mdp, add: tuple[Statement, ...], remove: tuple[Statement, ...], words: str
) -> None:
    store.put_one(D, "<#a> :one '1' ; :many 'x' .")
    before = statements(store)
    with pytest.raises(InvalidDocument, match=words):
        edit(store, (*add, value(A, "many", "good")), remove)
    assert statements(store) == before and len(history(store)) == 1


def test_a_value_is_replaced_in_one_edit(store: Mdp) -> None:
    store.put_one(D, "<#a> :one '1' .")
    assert edit(store, (value(A, "one", "2"),), (value(A, "one", "1"),)).updated == 1
    assert statements(store) == [value(A, "one", "2")]
    assert store.one("select number from filter_data") == 2


def test_conditions_hold_for_edits(store: Mdp) -> None:
    with pytest.raises(NotFound):
        edit(store, (value(A, "p", "x"),))
    store.put_one(D, "<#a> :p 'x' .")
    with pytest.raises(PreconditionFailed, match="its version is 1"):
        edit(store, (value(A, "p", "y"),), if_match=("7",))
    assert edit(store, (value(A, "p", "y"),), if_match=("1",)).version == 2


def test_edits_stay_within_the_limits_of_the_caller(store: Mdp) -> None:
    store.put({D: "<http://r/1> :p 'x' . <http://s/1> :p 'x' .", E: "<http://r/1> :p 'x' ."})
    own = WriteLimits(("http://d/1",), ("http://r/",))
    with pytest.raises(Forbidden, match="may not describe http://s/1"):
        edit(store, (value("http://s/1", "p", "y"),), limits=own)
    with pytest.raises(Forbidden, match="may not remove statements about http://s/1"):
        edit(store, (), (value("http://s/1", "p", "x"),), limits=own)
    with pytest.raises(Forbidden, match=f"may not write {E}"):
        edit(store, (value("http://r/1", "p", "y"),), uri=E, limits=own)
    # A deletion without a document concerns every document with the statement.
    with pytest.raises(Forbidden, match=f"may not write {E}"), store.engine.begin() as connection:
        tx = Transaction(store.provider, connection)
        tx.edit(Cause(UPDATE), [], [Edit(value("http://r/1", "p", "x"))], limits=own)
    # An edit without effect is allowed.
    assert edit(store, (), (value("http://s/1", "p", "absent"),), limits=own).version == 1
    assert edit(store, (value("http://r/1", "p", "y"),), limits=own).version == 2


def test_the_first_effective_cause_of_a_transaction_is_kept_with_each_version(store: Mdp) -> None:
    store.put_one(D, "<#a> :p 'x' .")
    x, y = value(A, "p", "x"), value(A, "p", "y")
    with store.engine.begin() as connection:
        tx = Transaction(store.provider, connection)
        first = tx.edit(Cause(RULE, "rule 1", "token ci#1"), [Edit(y, D), Edit(y, E)])
        assert (first.added, first.removed) == ([(D, y), (E, y)], [])
        undone = tx.edit(Cause(RULE, "rule 2"), [], [Edit(y, D)])
        assert (undone.added, undone.removed) == ([], [(D, y)])
        tx.edit(Cause(PROGRAM, "process 3", "user anna"), [Edit(y, D)], [Edit(x)])
        tx.edit(Cause(RULE, "rule 4"), [Edit(value(A, "p", "z"), D)])
        tx.finish()
    assert history(store)[0] == (2, "program", "process 3", "user anna")
    assert history(store, E) == [(1, "rule", "rule 1", "token ci#1")]


def test_a_registration_keeps_its_caller_in_small_and_large_batches(
    store: Mdp, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, small in enumerate((200, 0)):
        monkeypatch.setattr("mdv.db.statement_store.MAX_PIPELINED_STATEMENTS", small)
        for by in ("token ci\t\\#7", "user anna"):
            items = [store.prepare(f"http://d/{number}/{n}", f"<#a> :p '{by[:4]}' .") for n in range(2)]
            with store.engine.begin() as connection:
                register(connection, [replace(item, by=by) for item in items], store.provider)
        assert history(store, f"http://d/{number}/1") == [
            (2, REGISTRATION.name, None, "user anna"),
            (1, REGISTRATION.name, None, "token ci\t\\#7"),
        ]


def test_every_kind_of_cause_has_its_own_name_and_label() -> None:
    assert all(name == kind.name for name, kind in CAUSE_KINDS.items())
    assert len({kind.label for kind in CAUSE_KINDS.values()}) == len(CAUSE_KINDS) == 7


def test_one_statement_is_added_in_two_messages_and_a_commit(store: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for size in (10, 1000):
        uri = f"http://d/{size}"
        store.put_one(uri, " ".join(f"<#a{n}> :p '{n}' ." for n in range(size)))
        for number in range(6):  # until all statements are prepared
            edit(store, (value(uri + f"#{number}", "p", "x"),), uri=uri)
        messages: list[int] = []
        send = Pipeline._send_with_libpq

        def count(self: Pipeline, queued: Sequence[PendingResult], names: Sequence[bytes], send: Any = send) -> None:
            messages.append(len(queued))  # noqa: B023
            send(self, queued, names)

        with monkeypatch.context() as patch, executed(monkeypatch) as sent:
            patch.setattr(Pipeline, "_send_with_libpq", count)
            edit(store, (value(uri + "#b", "p", "x"),), uri=uri)
        assert len(messages) == 2 and sum(messages) == len(sent), sent
        counts.append(len(sent))
    assert counts[0] == counts[1]


# Reading


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not JSON"),
        (b"[]", "must be an object"),
        (b"{}", "must be an object"),
        (b'{"delete": []}', "must be an object"),
        (b'{"add": {}}', "must be lists"),
        (b'{"add": ["x"]}', r"add\[0\] is not a statement"),
        (b'{"add": [["http://a", "http://p"]]}', r"add\[0\] is not a statement"),
        (b'{"remove": [["a", "http://p", {"type": "uri", "value": "http://o"}]]}', r"remove\[0\]: 'a' is not an abs"),
        (b'{"add": [["http://a", "p", {"type": "uri", "value": "http://o"}]]}', "'p' is not an absolute URI"),
        (b'{"add": [["http://a", "http://p", {"type": "uri", "value": "o"}]]}', "'o' is not an absolute URI"),
        (b'{"add": [["http://a", "http://p", {"type": "uri", "value": "http://o", "lang": "en"}]]}', 'no "lang"'),
        (b'{"add": [["http://a", "http://p", {"type": "bnode", "value": "o"}]]}', "A term is"),
        (b'{"add": [["http://a", "http://p", {"type": "literal", "value": 5}]]}', "A term is"),
        (b'{"add": [["http://a", "http://p", {"type": "literal", "value": "a\\u0000"}]]}', "NUL"),
        (b'{"add": [["http://a", "http://p", {"type": "literal", "value": "a\\ud800"}]]}', "unpaired surrogate"),
        (b'{"add": [["http://a\\ud800", "http://p", {"type": "literal", "value": "a"}]]}', "not an absolute URI"),
        (b'{"add": [["http://a", "http://p", {"type": "literal", "value": "a", "lang": "e n"}]]}', "language tag"),
        (b'{"add": [["http://a", "http://p", {"type": "literal", "value": "a", "datatype": "x"}]]}', "not an absolute"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_bodies_that_are_no_edits_are_refused(body: bytes, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        read_edits(body)


def test_a_value_that_no_document_could_contain_is_refused() -> None:
    long = {"type": "literal", "value": "\x7f" * 3_000_000}
    with pytest.raises(BadRequest, match="more than 16,000,000 bytes in N-Triples"):
        read_edits(json.dumps({"add": [["http://a", "http://p", long]]}).encode())


def test_the_number_of_edits_is_limited() -> None:
    one = ["http://a", "http://p", {"type": "literal", "value": "x"}]
    with pytest.raises(BadRequest, match="10,000 statements"):
        read_edits(json.dumps({"add": [one] * MAX_EDITS, "remove": [one]}).encode())


@pytest.mark.parametrize(
    ("term", "turtle"),
    [
        ({"type": "literal", "value": "x"}, "'x'"),
        ({"type": "literal", "value": "x", "datatype": XSD + "string"}, "'x'"),
        ({"type": "literal", "value": "x", "lang": "EN-us"}, "'x'@EN-us"),
        ({"type": "literal", "value": "05", "datatype": XSD + "integer"}, "'05'^^xsd:integer"),
        ({"type": "uri", "value": "http://o"}, "<http://o>"),
    ],
)
def test_a_term_is_what_a_registration_of_the_same_text_stores(store: Mdp, term: dict[str, str], turtle: str) -> None:
    store.put_one(D, f"<#a> :many 'other' , {turtle} .")
    added, _ = read_edits(json.dumps({"add": [[A, "http://v/many", term]]}).encode())
    assert edit(store, added).version == 1
    assert edit(store, (), added).version == 2
    assert statements(store) == [value(A, "many", "other")]


# Faults

KILLED = """
    import os, signal, sys
    from mdv.cause import RULE, Cause
    from mdv.db.engine import make_engine
    from mdv.mdp.edit import Edit
    from mdv.mdp.provider import Provider
    from mdv.mdp.transaction import Transaction
    from mdv.model import Statement, Term

    engine = make_engine(sys.argv[1])
    with engine.begin() as connection:
        tx = Transaction(Provider(engine), connection)
        for number in range(5):
            added = Statement("http://d/1#a", "http://v/many", Term.literal(f"new {number}"))
            tx.edit(Cause(RULE, "rule 1"), [Edit(added, "http://d/1")])
            tx.flush()
        tx.finish()
"""


@pytest.mark.full
@pytest.mark.parametrize("times", [1, 3])
def test_killed_between_rounds_a_transaction_leaves_nothing(store: Mdp, database_url: str, times: int) -> None:
    store.put_one(D, "<#a> :many 'x' .")
    command = [sys.executable, "-c", textwrap.dedent(KILLED), database_url]
    killed = subprocess.run(command, env=os.environ | {"MDV_DIE_AT": f"{AFTER_EDIT}:{times}"}, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert statements(store) == [value(A, "many", "x")] and len(history(store)) == 1
    subprocess.run(command, check=True)  # the same without a kill
    assert len(statements(store)) == 6 and history(store)[0] == (2, "rule", "rule 1", None)
