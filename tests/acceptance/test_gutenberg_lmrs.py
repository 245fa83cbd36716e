"""The caches of LMRs over three years of the catalogue of Project Gutenberg: one with each rule, one with all."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import GUTENBERG
from test_gutenberg import YEARS, fingerprint, prepared, register_all, stored

from mdv.lmr.checksum import checksum
from mdv.lmr.collect import check
from mdv.lmr.store import Cache
from mdv.lmr.sync import Sync
from mdv.mdp.register import Prepared

sys.path.append(str(Path(__file__).parents[1] / "model"))

from near import Near

if TYPE_CHECKING:
    from conftest import Mdp

pytestmark = pytest.mark.skipif(not GUTENBERG.is_dir(), reason=f"the catalogue is not at {GUTENBERG}")


class Repository:
    """An LMR with its cache, and its rules by name."""

    def __init__(self, mdp: Mdp, name: str, rules: dict[str, str], folder: Path) -> None:
        self.mdp = mdp
        self.lmr = mdp.create_lmr(name)
        self.cache = Cache.open(f"sqlite:///{folder / name}.db")
        self.sync = Sync(self.cache, Near(mdp, self.lmr))
        self.subscriptions = [s.id for s in mdp.subscribe(self.lmr, *rules.items())]

    def catch_up(self) -> int:
        """Apply all that there is; how many events that were."""
        events = 0
        while not (applied := self.sync.step()).up_to_date:
            events += applied.events
        return events + applied.events

    def named(self) -> int:
        """How many resources are here that are not blank nodes."""
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


def test_caches_hold_exactly_the_closure_year_by_year(mdp: Mdp, tmp_path: Path) -> None:
    body = json.loads((GUTENBERG / "expect.json").read_text("utf-8"))
    expected, rules = body["expected"], body["rules"]
    mdp.put_schema((GUTENBERG / "schema.ttl").read_text("utf-8"))
    one_rule = {name: Repository(mdp, name, {name: rule}, tmp_path) for name, rule in rules.items()}
    all_rules = Repository(mdp, "all_rules", rules, tmp_path)
    for year in YEARS:
        items = prepared(mdp, year)
        gone = stored(mdp) - {item.uri for item in items}
        version = items[0].schema_version
        register_all(mdp, items + [Prepared(uri, None, version) for uri in sorted(gone)])
        for repository in (*one_rule.values(), all_rules):
            began = time.perf_counter()
            events = repository.catch_up()
            print(f"{year} {repository.lmr.name}: {events} events in {time.perf_counter() - began:.2f} s")
            assert check(repository.cache) == []
            position, sums = mdp.feeds.checksum(repository.lmr)
            assert checksum(repository.cache) == (position, sums)
        for name, rule in expected[year]["rules"].items():
            selected = one_rule[name].selected()
            assert (len(selected), fingerprint(selected)) == (rule["matches"], rule["sha256"]), name
        found = {name: repository.named() for name, repository in one_rule.items()}
        assert found == {name: rule["cached_named"] for name, rule in expected[year]["rules"].items()}
        assert all_rules.named() == expected[year]["all_rules_cached_named"]
    for repository in (*one_rule.values(), all_rules):
        for number in repository.subscriptions:
            mdp.unsubscribe(repository.lmr, number)
        repository.catch_up()
        assert repository.rows() == 0, repository.lmr.name
    assert mdp.one("select count(*) from lmr_resources") == 0
