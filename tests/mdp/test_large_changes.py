"""Resources with very many values, properties or referrers: the work of a transaction is proportional to its change.

No time is measured. The rows and index entries read by a transaction are counted. For each statement of the
documents the number is bounded; quadratic work would read as many rows as there are values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import Connection

from mdv.db.engine import driver
from mdv.db.filter import find_references_between, pinned_plans
from mdv.db.load_sql import load_sql
from mdv.errors import MdvError
from mdv.inspect.sql.documents import read_document, read_document_statements
from mdv.mdp.register import Prepared, register
from mdv.model import Statement, Term
from mdv.rdf.digest import statement_hash
from tests.support.mdp import Mdp
from tests.support.sent_sql import executed

pytestmark = pytest.mark.full

SCHEMA = """<urn:s> mdv:world mdv:open .
:C a rdfs:Class . :D a rdfs:Class .
:v rdfs:range xsd:integer ; mdv:setValued true . :w rdfs:range xsd:integer ; mdv:setValued true .
:t rdfs:range xsd:string ; mdv:setValued true . :u rdfs:range xsd:string ; mdv:setValued true .
:k rdfs:range xsd:integer . :ref mdv:reference mdv:strong ; mdv:setValued true . :name rdfs:range xsd:string .
"""

SMALL, LARGE = 300, 1500
MOST_ROWS = 60
"""The maximum number of rows read per changed statement, by all SQL statements of a transaction together."""

Documents = Mapping[str, str | None]
Text = Callable[[int, int], str]
"""Make a document from its size and the first of its values."""


def rows_read(connection: Connection) -> int:
    """Return the number of rows of MDV's tables and entries of its indexes read so far, dead ones included. Within one
    transaction, differences of it are exact."""
    read = """select sum(pg_stat_get_xact_tuples_returned(oid)) from pg_class
              where relkind in ('r', 'i') and relnamespace = 'public'::regnamespace"""
    return int(connection.execute(sqlalchemy.text(read)).scalar_one() or 0)


def put(mdp: Mdp, documents: Documents) -> int:
    """Register or delete documents in one transaction; return the number of rows read."""
    return put_prepared(mdp, [mdp.prepare(uri, turtle) for uri, turtle in documents.items()])


def put_prepared(mdp: Mdp, batch: list[Prepared]) -> int:
    with mdp.engine.begin() as connection:
        before = rows_read(connection)
        answers = register(connection, batch, mdp.provider)
        assert not [answer for answer in answers if isinstance(answer, MdvError)]
        return rows_read(connection) - before


def values(count: int, first: int, name: str = ":v") -> str:
    return f"{name} " + ", ".join(map(str, range(first, first + count)))


def texts(count: int, first: int, name: str) -> str:
    return f"{name} " + ", ".join(f"'value {number}'" for number in range(first, first + count))


def of_one_property(count: int, first: int) -> str:
    return f"<#c> a :C ; {values(count, first)} ."


def of_two_properties(count: int, first: int) -> str:
    return f"<#c> a :C ; :k 1 ; {values(count, first)} ; {values(count, first + 1_000_000, ':w')} ."


def of_texts(count: int, first: int) -> str:
    return f"<#c> a :C ; {texts(count, first, ':t')} ; {texts(count, first, ':u')} ."


def of_many_properties(count: int, first: int) -> str:
    return "<#c> a :C ; " + " ; ".join(f":p{number} {first + number}" for number in range(count)) + " ."


def of_some_properties(count: int, first: int) -> str:
    return "<#c> a :C ; " + " ; ".join(values(count // 20, first, f":p{number}") for number in range(20)) + " ."


def of_references_and_values(count: int, first: int) -> str:
    """One resource with very many references and very many values."""
    references = ":ref " + ", ".join(f"<#t{number}>" for number in range(count))
    targets = "".join(f" <#t{number}> a :D ; :k 5 ." for number in range(count))
    return f"<#c> a :C ; {values(count, first, ':w')} ; {references} .{targets}"


def of_two_resources(count: int, first: int) -> str:
    """Two resources, one of which refers to the other. All values of one are greater than those of the other."""
    other = values(count, first - 10**6, ":w")
    return f"<#c> a :C ; :ref <#d> ; {values(count, first)} . <#d> a :D ; {other} ."


def of_referrers(count: int, first: int) -> str:
    """Very many resources that refer to one resource."""
    return "\n".join(f"<#r{number}> a :C ; :name 'n{first}' ; :ref <http://d/t#t> ." for number in range(count))


CASES: dict[str, tuple[Text, list[str]]] = {
    "no rule": (of_one_property, []),
    "unequal": (of_one_property, ["search C c register c where c.v? != 5"]),
    "a range": (of_one_property, ["search C c register c where c.v? >= 7"]),
    "two ranges": (of_one_property, ["search C c register c where c.v? > 100 and c.v? < 50"]),
    "two properties": (of_two_properties, ["search C c register c where c.v? > 3 and c.w? = 17"]),
    "contains": (of_texts, ["search C c register c where c.t? contains 'alu' and c.u? contains 'nothing'"]),
    "a join": (of_two_properties, ["search C a, C b register a where a.v? = b.w?"]),
    "a join by order": (of_two_properties, ["search C a, C b register a where a.v? < b.w? and a.k = 1"]),
    "a reference and values": (
        of_two_resources,
        [
            f"search C a, D d register a where a.ref? = d and a.v? {operator} d.w?"
            for operator in ("=", "<", "<=", "!=")
        ],
    ),
    "many properties": (of_many_properties, ["search C c register c"]),
    "some properties": (of_some_properties, ["search C c register c"]),
    "references and values": (
        of_references_and_values,
        ["search C c register c where c.ref?.k = 5 and c.w? = 3", "search C c register c"],
    ),
    "referrers": (
        of_referrers,
        ["search C c register c where c.name = 'zz' and c.ref?.k = 1", "search C c register c where c.ref?.v? > 3"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_work_of_a_transaction_is_proportional_to_its_change(mdp: Mdp, case: str) -> None:
    text, rules = CASES[case]
    mdp.put_schema(SCHEMA)
    if rules:
        mdp.subscribe(mdp.create_lmr("local"), *rules)
    put(mdp, {"http://d/t": "<#t> a :D ; :k 1 ; :v 1 ."})
    # Another resource has the added and the removed values.
    put(mdp, {"http://d/other": f"<#c> a :C ; {values(3 * LARGE, 1000, ':w')} ."})
    most = MOST_ROWS * len(mdp.prepare("http://d/1", text(LARGE, 0)).hashes)
    read = {
        "first": put(mdp, {"http://d/1": text(LARGE, 1000)}),
        "replaced": put(mdp, {"http://d/1": text(LARGE, 1000 + LARGE)}),
        "half": put(mdp, {"http://d/1": text(LARGE, 1000 + LARGE + LARGE // 2)}),
        "deleted": put(mdp, {"http://d/1": None}),
    }
    assert max(read.values()) < most, read


def test_referrers_are_found_in_proportional_work_when_their_target_changes(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    mdp.subscribe(mdp.create_lmr("local"), "search C c register c where c.ref?.k = 2")
    put(mdp, {"http://d/t": "<#t> a :D ; :k 1 .", "http://d/o": "<#o> a :D ; :k 1 ."})
    put(mdp, {"http://d/r": of_referrers(LARGE, 0)})
    changed = put(mdp, {"http://d/t": "<#t> a :D ; :k 2 .", "http://d/o": "<#o> a :D ; :k 2 ."})
    assert len(mdp.changes()) == LARGE
    deleted = put(mdp, {"http://d/t": None, "http://d/r": None})
    assert max(changed, deleted) < 3 * LARGE * MOST_ROWS


def test_the_work_for_one_resource_in_very_many_documents_is_proportional(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    uris = [f"http://d/{number}" for number in range(LARGE)]
    steps: list[Documents] = [
        {uri: f"<http://d/x#c> a :C ; :v {first + number} ." for number, uri in enumerate(uris)}
        for first in (0, LARGE, 2 * LARGE)
    ]
    read = [put(mdp, documents) for documents in [*steps, dict.fromkeys(uris)]]
    assert max(read) < 2 * LARGE * MOST_ROWS, read


def test_a_value_among_very_many_is_found_by_its_hash(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    put(mdp, {"http://d/1": f"<http://d/x#c> a :C ; {values(LARGE, 0)} ."})
    assert put(mdp, {"http://d/2": f"<http://d/x#c> :v {LARGE // 2} ."}) < MOST_ROWS
    assert put(mdp, {"http://d/2": None}) < MOST_ROWS
    with mdp.engine.connect() as connection:
        plan = "\n".join(row[0] for row in driver(connection).execute(
            "explain " + load_sql("store")["find_others"],
            {"resources": "{1}", "properties": "{1}", "targets": "{NULL}", "values": '["x"]', "langs": "[null]",
             "datatypes": "{NULL}", "hashes": "{1}"},
        ).fetchall())  # fmt: skip
    found = re.search(r"Index Cond: (.*)", plan)
    assert found is not None and all(name in found[1] for name in ("resource_id", "property_id", "hash")), plan


def test_the_number_of_sql_statements_does_not_depend_on_the_number_of_values(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    mdp.subscribe(mdp.create_lmr("local"), "search C c register c where c.v? > 3 and c.w? = 17")
    sent = {}
    for count in (SMALL, LARGE):
        uri = f"http://d/{count}"
        put(mdp, {uri: of_two_properties(count, 0)})
        with executed(pytest.MonkeyPatch()) as asked:
            put(mdp, {uri: of_two_properties(count, count)})
            put(mdp, {uri: None})
        sent[count] = len(asked)
    assert sent[SMALL] == sent[LARGE]


def test_reading_a_document_does_not_read_its_older_versions(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    read = []
    for version in range(6):
        put(mdp, {"http://d/1": of_one_property(SMALL, version * SMALL)})
        with mdp.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(sqlalchemy.text("vacuum filter_data"))
        with mdp.engine.begin() as connection:
            connection.execute(sqlalchemy.text("set local enable_seqscan = off"))
            document = read_document(connection, "http://d/1")
            assert document is not None and document.version == version + 1
            before = rows_read(connection)
            assert len(read_document_statements(connection, document)) == SMALL + 1
            read.append(rows_read(connection) - before)
    assert max(read) < min(read) + SMALL // 2, read


def test_references_are_searched_in_long_lists_by_hashing(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    put(mdp, {"http://d/t": "<#t> a :D .", "http://d/r": of_referrers(10, 0)})
    numbers = dict(mdp.rows("select uri, id from resources"))
    target = numbers["http://d/t#t"]
    some = [number for uri, number in numbers.items() if uri.startswith("http://d/r#")]
    with mdp.engine.begin() as connection, pinned_plans(connection):
        assert set(find_references_between(connection, some, [target, 10**6])) == {(number, target) for number in some}
        plan = driver(connection).execute(
            "explain " + load_sql("rule_graph")["find_referring"], {"resources": some, "targets": [target]}
        )
        assert "hashed SubPlan" in "\n".join(row[0] for row in plan.fetchall())


def test_the_lookups_of_edits_read_a_bounded_number_of_rows_per_edit(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    for size in (SMALL, LARGE):
        uri = f"http://d/{size}"
        mdp.put_one(uri, " ".join(f"<#a{number}> :name 'x' ." for number in range(size)))
        statement = {name: Statement(f"{uri}#a{name}", "http://v/name", Term.literal("x")) for name in range(size)}
        ids = mdp.vocabulary.ids(["http://v/name"])
        edits = [
            {"subject": one.subject, "property_id": ids[one.property], "hash": statement_hash(one)}
            for one in statement.values()
        ]
        for name in ("find_edited", "count_subjects"):
            with mdp.engine.connect() as connection:
                query = "explain (analyze, format json) " + load_sql("store")[name]
                ((plan,),) = driver(connection).execute(query, {"statements": json.dumps(edits)}).fetchall()
            assert _rows_of_plan(plan[0]["Plan"]) <= MOST_ROWS * size, name


def _rows_of_plan(node: dict[str, Any]) -> float:
    """Return the number of rows that the steps of a plan have produced or discarded."""
    rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Join Filter", 0)
    return rows * node["Actual Loops"] + sum(map(_rows_of_plan, node.get("Plans", ())))
