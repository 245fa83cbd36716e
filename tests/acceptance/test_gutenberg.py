"""Three yearly editions of the Project Gutenberg catalogue, registered in turn.

Each edition changes only what differs. The filter, one LMR per rule and one LMR with all rules have exactly the results
that another engine computed from the files of that year.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from mdv.inspect.sql.documents import read_document, read_document_statements
from mdv.lmr.cache import Cache
from mdv.lmr.checksum import checksum
from mdv.lmr.garbage_collector import find_problems
from mdv.lmr.sync import Sync
from mdv.mdp.register import Prepared
from tests.support.gutenberg import GUTENBERG, YEARS, Results, fingerprint, prepared, register_all, stored
from tests.support.in_process_source import Near
from tests.support.mdp import Mdp

pytestmark = pytest.mark.skipif(not GUTENBERG.is_dir(), reason=f"the catalogue is not at {GUTENBERG}")

LARGE_PAGE = 20_000
"""Limit of events per page that most transactions fit into. Transactions do not fit into the default limit, and are
staged."""


class Repository:
    """An LMR with its cache and its rules."""

    def __init__(self, mdp: Mdp, name: str, rules: dict[str, str], folder: Path) -> None:
        self.mdp = mdp
        self.lmr = mdp.create_lmr(name)
        self.cache = Cache.open(f"sqlite:///{folder / name}.db")
        source = Near(mdp, self.lmr, LARGE_PAGE) if len(rules) == 1 else Near(mdp, self.lmr)
        self.sync = Sync(self.cache, source)
        self.rules = rules
        self.subscribe()

    def subscribe(self) -> None:
        self.subscriptions = [s.id for s in self.mdp.subscribe(self.lmr, *self.rules.items())]

    def unsubscribe(self) -> None:
        """Remove the rules one by one."""
        for number in self.subscriptions:
            self.mdp.unsubscribe(self.lmr, number)

    def catch_up(self) -> None:
        """Apply all pending events."""
        while not self.sync.step().up_to_date:
            pass

    def named(self) -> int:
        """Return the number of cached resources that are not blank nodes."""
        query = "select count(*) from resources where present and uri not like '%#\\_:%' escape '\\'"
        with self.cache.reading() as connection:
            return int(connection.exec_driver_sql(query).scalar_one())

    def selected(self) -> set[str]:
        with self.cache.reading() as connection:
            return set(connection.exec_driver_sql("select uri from resources where selected").scalars())

    def rows(self) -> int:
        with self.cache.reading() as connection:
            resources = connection.exec_driver_sql("select count(*) from resources").scalar_one()
            return int(resources + connection.exec_driver_sql("select count(*) from statements").scalar_one())


def check_stored(mdp: Mdp, items: list[Prepared], year: str, expected: Mapping[str, Any]) -> None:
    assert stored(mdp) == {item.uri for item in items}
    named = mdp.one(
        "select count(*) from resources r where uri not like '%#\\_:%'"
        " and exists (select from filter_data f where f.resource_id = r.id)"
    )
    assert named == expected["named_resources"]
    with mdp.engine.connect() as connection:
        for item in random.Random(year).sample(items, 40):
            info = read_document(connection, item.uri)
            assert info is not None
            assert item.document is not None
            found = read_document_statements(connection, info)
            assert sorted(found, key=repr) == sorted(item.document.statements, key=repr)


def check_results(mdp: Mdp, results: Results, expected: Mapping[str, Any]) -> None:
    for name, rule in expected["rules"].items():
        assert mdp.results_of(results.rules[name]) == results.of(name)
        assert (len(results.of(name)), fingerprint(results.of(name))) == (rule["matches"], rule["sha256"]), name


def check_registering_again_changes_nothing(mdp: Mdp, items: list[Prepared]) -> None:
    position, log = mdp.one("select position from mdp_state"), mdp.one("select count(*) from statement_log")
    again = register_all(mdp, items)
    assert sum(o.inserted + o.updated + o.deleted + o.created for o in again) == 0
    assert mdp.one("select position from mdp_state") == position
    assert mdp.one("select count(*) from statement_log") == log


def check_caches(
    mdp: Mdp, one_rule: Mapping[str, Repository], all_rules: Repository, expected: Mapping[str, Any]
) -> None:
    for repository in (*one_rule.values(), all_rules):
        repository.catch_up()
        assert find_problems(repository.cache) == []
        assert checksum(repository.cache) == mdp.feeds.checksum(repository.lmr)
    for name, rule in expected["rules"].items():
        selected = one_rule[name].selected()
        assert (len(selected), fingerprint(selected)) == (rule["matches"], rule["sha256"]), name
    found = {name: repository.named() for name, repository in one_rule.items()}
    assert found == {name: rule["cached_named"] for name, rule in expected["rules"].items()}
    assert all_rules.named() == expected["all_rules_cached_named"]


def check_caches_without_rules_are_empty(repositories: Iterable[Repository]) -> None:
    for repository in repositories:
        repository.unsubscribe()
        repository.catch_up()
        assert repository.rows() == 0, repository.lmr.name


def test_each_yearly_edition_changes_only_what_differs_and_caches_hold_exactly_the_closure(
    mdp: Mdp, tmp_path: Path
) -> None:
    body = json.loads((GUTENBERG / "expect.json").read_text("utf-8"))
    rules = body["rules"]
    mdp.put_schema((GUTENBERG / "schema.ttl").read_text("utf-8"))
    one_rule = {name: Repository(mdp, name, {name: rule}, tmp_path) for name, rule in rules.items()}
    all_rules = Repository(mdp, "all_rules", rules, tmp_path)
    results = Results(mdp, dict(zip(rules, all_rules.subscriptions, strict=True)))
    for year in YEARS:
        expected = body["expected"][year]
        items = prepared(mdp, year)
        assert len(items) == expected["documents"]
        gone = stored(mdp) - {item.uri for item in items}
        version = items[0].schema_version
        register_all(mdp, items + [Prepared(uri, None, version) for uri in sorted(gone)], results)
        check_results(mdp, results, expected)
        check_stored(mdp, items, year, expected)
        check_registering_again_changes_nothing(mdp, prepared(mdp, year) if year == YEARS[0] else items)
        check_caches(mdp, one_rule, all_rules, expected)
        if year == YEARS[0]:  # the smallest edition
            check_caches_without_rules_are_empty(one_rule.values())
            for repository in one_rule.values():
                repository.subscribe()
    for repository in one_rule.values():
        repository.unsubscribe()
    check_caches_without_rules_are_empty([all_rules])
    assert mdp.one("select count(*) from lmr_resources") == 0
