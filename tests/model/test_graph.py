"""The global dependency graph (paper, 3.3.2 and 3.3.3): rules merged into it and removed again, in any order.

After every step the tables are compared with a recount: all rules, decomposed again.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mdv.errors import Conflict, InvalidRule, NotFound
from mdv.rules.atomic import AtomicRule, TriggeringRule, decompose
from mdv.rules.normalise import normalise
from mdv.rules.operators import Operator
from mdv.rules.parse import parse
from mdv.rules.pattern import pattern
from tests.support.generated_rules import SCHEMA, RuleText, rule_texts, schema_in_force, variants
from tests.support.mdp import Mdp

EXAMPLES = int(os.environ.get("MDV_MODEL_EXAMPLES", "10"))
WORLD = schema_in_force(SCHEMA).schema

FILTER_RULES = [*(operator.constants_table for operator in Operator), "filter_rules"]
GRAPH = ["atomic_rules", "rule_dependencies", "rule_groups", "end_rules", "rule_ends", "rule_searches", *FILTER_RULES]
SUSPENDED = ["suspended_rules", "suspended_ends"]

Key: TypeAlias = tuple[Any, ...]
"""The content of an atomic rule: a triggering rule by its predicate, a join rule by its group and its inputs."""


@pytest.fixture
def world(mdp: Mdp) -> Mdp:
    mdp.put_schema(SCHEMA)
    return mdp


# -- the recount


class Recount:
    """Return the graph of these rules, by name or number, each decomposed separately."""

    def __init__(self, rules: dict[object, str]) -> None:
        named = {name: parse(text) for name, text in rules.items() if isinstance(name, str)}
        self.uses: Counter[Key] = Counter()
        self.ends: dict[object, set[Key]] = {}
        self.wholes: dict[Key, str] = {}
        for name, text in rules.items():
            self.ends[name] = set()
            for conjunction in normalise(parse(text), WORLD, named.get).conjunctions:
                atomic = decompose(conjunction)
                end = key_of(atomic, len(atomic) - 1)
                self.ends[name].add(end)
                self.wholes.setdefault(end, as_text(pattern(conjunction)[0].as_json()))
        self.joins: set[Key] = set()
        for end in set().union(*self.ends.values()):
            self._walk(end)
        for ends in self.ends.values():
            self.uses.update(ends)

    def _walk(self, key: Key) -> None:
        if key[0] == "join" and key not in self.joins:
            self.joins.add(key)
            self.uses.update(key[2])
            for source in key[2]:
                self._walk(source)


def key_of(atomic: tuple[AtomicRule, ...], place: int) -> Key:
    rule = atomic[place]
    if not isinstance(rule, TriggeringRule):
        return ("join", as_text(rule.as_json()), tuple(key_of(atomic, source) for source in rule.inputs))
    if rule.operator is None or rule.sort is None or rule.constant is None:
        return ("triggering", rule.class_iri)
    value = rule.constant.value
    shown = value if isinstance(value, str) else Decimal(value)
    return ("triggering", rule.class_iri, rule.property, rule.operator.value, rule.sort.value, shown)


def as_text(body: dict[str, Any]) -> str:
    return json.dumps(body, sort_keys=True)


class Stored:
    """Return the graph stored in the tables."""

    def __init__(self, mdp: Mdp) -> None:
        self.mdp = mdp
        self.rows = {
            number: row for number, *row in mdp.rows("select rule_id, uses, group_id, class from atomic_rules")
        }
        self.groups = {n: (whole, as_text(body), members, driver) for n, whole, body, members, driver in mdp.rows(
            "select group_id, whole, pattern, members, driver from rule_groups")}  # fmt: skip
        self.keys: dict[int, Key] = dict(self._triggering())
        inputs = mdp.rows("select target, source, group_id from rule_dependencies order by target, param")
        self.inputs: dict[int, list[int]] = {}
        for target, source, group in inputs:
            assert source < target, "older rules need no younger ones, so there is no cycle"
            assert self.rows[target][1] == group
            self.inputs.setdefault(target, []).append(source)
        for number in sorted(self.inputs):
            sources = tuple(self.keys[source] for source in self.inputs[number])
            self.keys[number] = ("join", self.groups[self.rows[number][1]][1], sources)

    def _triggering(self) -> Iterator[tuple[int, Key]]:
        for table in FILTER_RULES[:-1]:
            for number, value, exact, *rest in self.mdp.rows(
                f"select rule_id, value, number, class, property, operator, sort from {table}"
                " join rule_predicates using (predicate_id)"
            ):
                yield number, ("triggering", *rest, value if value is not None else exact)
        for number, class_iri in self.mdp.rows("select rule_id, class from filter_rules"):
            yield number, ("triggering", class_iri)


def check(mdp: Mdp, rules: dict[object, str], ids: dict[object, int]) -> None:
    """Check that the tables contain exactly the graph of these rules."""
    stored, wanted = Stored(mdp), Recount(rules)
    assert stored.keys.keys() == stored.rows.keys(), "an atomic rule without its row, or a row without its rule"
    assert len(set(stored.keys.values())) == len(stored.keys), "a duplicate atomic rule"
    assert {stored.keys[n]: uses for n, (uses, *_) in stored.rows.items()} == wanted.uses
    assert all(row[0] > 0 for row in stored.rows.values()), "an orphan"
    for number, key in stored.keys.items():
        if key[0] == "triggering":
            assert stored.rows[number][1:] == [None, key[1]]
    ends = {name: {stored.keys[end] for end in mdp.ends_of(number)} for name, number in ids.items()}
    assert ends == wanted.ends
    assert mdp.one("select count(*) from rule_ends") == sum(map(len, ends.values()))
    check_groups(stored, wanted)


def check_groups(stored: Stored, wanted: Recount) -> None:
    members = {(whole, body): count for whole, body, count, _ in stored.groups.values()}
    assert len(members) == len(stored.groups), "a duplicate group"
    of_joins = Counter((False, key[1]) for key in wanted.joins)
    rows = stored.mdp.rows("select rule_id, driver_id, group_id, leaves from end_rules")
    assert {stored.keys[end] for end, *_ in rows} == wanted.wholes.keys() and len(rows) == len(wanted.wholes)
    # Several texts of a rule may decompose into the same: any of their patterns is accepted.
    of_ends = Counter((True, stored.groups[group][1]) for _, _, group, _ in rows)
    assert members == of_joins + of_ends
    for _, found_by, group, leaves in rows:
        _, body, _, driver = stored.groups[group]
        assert found_by == (leaves[driver] if leaves else None)
        asked = [tuple(leaf[1:]) for leaf in json.loads(body)["leaves"]]
        assert [stored.keys[leaf][1:5] for leaf in leaves] == asked


def empty(mdp: Mdp) -> bool:
    return not any(mdp.one(f"select count(*) from {table}") for table in GRAPH)


# -- rules that share parts


A, B = (
    "search Book b register b where b.author.name = 'a' and b.pages > 5",
    "search Agent a register a where a.name = 'a'",
)


def texts(mdp: Mdp) -> dict[str, int]:
    return dict(mdp.rows("select text, uses from atomic_rules"))


def test_an_atomic_rule_shared_by_two_rules_is_stored_once(world: Mdp) -> None:
    first, second = world.add_rules([A, B])
    assert texts(world)[B] == 2
    assert second.ends[0] in {source for (source,) in world.rows("select source from rule_dependencies")}
    world.remove_rules([first.id])
    assert texts(world) == {B: 1}
    check(world, {second.id: B}, {second.id: second.id})
    world.remove_rules([second.id])
    assert empty(world)


def test_an_atomic_rule_that_another_rule_needs_stays_when_its_rule_is_removed(world: Mdp) -> None:
    first, second = world.add_rules([A, B])
    world.remove_rules([second.id])
    assert texts(world)[B] == 1
    assert world.one("select count(*) from end_rules") == 1, "a rule that is only needed by others is no end rule"
    check(world, {first.id: A}, {first.id: first.id})


def test_adding_the_same_rule_twice_gives_one_set_of_atomic_rules(world: Mdp) -> None:
    added = world.add_rules([A, A])
    (third,) = world.add_rules([A])
    assert {rule.ends for rule in (*added, third)} == {third.ends}
    assert world.one("select uses from atomic_rules where rule_id = :end", end=third.ends[0]) == 3
    assert world.one("select members from rule_groups where whole") == 1
    world.remove_rules([added[0].id, third.id])
    check(world, {added[1].id: A}, {added[1].id: added[1].id})


def test_very_many_rules_are_merged_like_a_few(world: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdv.mdp.rules.planning.RULES_PER_MERGE", 70)
    shapes = (
        "search Book b register b where b.pages = {}",
        "search Book b register b where b.author.name = 'a' and b.pages > {}",
        "search Book b register b where b.author.name contains 'name {}'",
        "search Agent a register a where a.name = 'a' or a.name = 'b{}'",
        "search Agent a register a",
    )
    # Each comes again, at once and much later; some existed before.
    texts_of = [shapes[n % len(shapes)].format(n // 2 % 40) for n in range(300)]
    before = [(rule.id, text) for rule, text in zip(world.add_rules(texts_of[:9]), texts_of, strict=False)]
    added = [(rule.id, text) for rule, text in zip(world.add_rules(texts_of), texts_of, strict=True)]
    rules: dict[object, str] = dict(before + added)
    check(world, rules, {number: number for number in rules})  # type: ignore[misc]
    world.remove_rules([number for number, _ in before + added])
    assert empty(world)


def test_rules_with_equal_numeric_constants_share_their_atomic_rules(world: Mdp) -> None:
    rule = "search Book b register b where b.total = {}"
    one, other, more = world.add_rules([rule.format(5), rule.format("5.00"), rule.format("5.01")])
    assert one.ends == other.ends != more.ends


@pytest.mark.parametrize(
    ("one", "other"),
    [("1" + "0" * 40, "1" + "0" * 39 + "1"), ("0." + "0" * 40 + "1", "0." + "0" * 40 + "2"), ("0", "1e-60"),
     ("3.0000000000000000000000000001", "3")],
)  # fmt: skip
def test_numbers_are_distinguished_to_the_last_digit(world: Mdp, one: str, other: str) -> None:
    rule = "search Book b register b where b.total = {}"
    (first,), (second,) = world.add_rules([rule.format(one)]), world.add_rules([rule.format(other)])
    assert first.ends != second.ends


def test_a_rule_with_or_has_each_distinct_end_rule_once(world: Mdp) -> None:
    text = "search Book b register b where b.pages = 1 or b.pages = 2 or b.pages = 1.0"
    (rule,) = world.add_rules([text])
    assert len(rule.ends) == len(set(rule.ends)) == 2
    check(world, {rule.id: text}, {rule.id: rule.id})
    world.change_rule(rule.id, "search Book b register b where b.pages = 2 or b.pages = 3")
    check(world, {rule.id: "search Book b register b where b.pages = 2 or b.pages = 3"}, {rule.id: rule.id})
    world.remove_rules([rule.id])
    assert empty(world)


def test_a_join_that_now_compares_numbers_becomes_another_atomic_rule(mdp: Mdp) -> None:
    mdp.put_schema("<> mdv:world mdv:open . :B a rdfs:Class . :x a rdf:Property . :y a rdf:Property .")
    mdp.put_one("http://d/1", "<#a> a :B ; :x '5' . <#b> a :B ; :y '05' .")
    (rule,) = mdp.add_rules(["search B a, B b register a where a.x = b.y"])
    assert mdp.changes() == []
    mdp.put_schema("<> mdv:world mdv:open . :B a rdfs:Class . :x rdfs:range xsd:integer . :y rdfs:range xsd:integer .")
    (end,) = mdp.ends_of(rule.id)
    assert mdp.changes() == [(end, "http://d/1#a", True)] and mdp.results_of(rule.id) == {"http://d/1#a"}
    mdp.put_one("http://d/2", "<#a> a :B ; :x '005' .")
    assert mdp.changes() == [(end, "http://d/2#a", True)]


# -- rules over rules


def test_a_rule_that_another_searches_cannot_be_removed_before_it(world: Mdp) -> None:
    big, over = world.add_rules([("big", "search Book b register b where b.pages > 5"),
                                 ("over", "search big b register b where b.total = 1")])  # fmt: skip
    with pytest.raises(Conflict, match="over") as raised:
        world.remove_rules([big.id])
    assert "big" in raised.value.detail and raised.value.extra == {"rule": over.id, "searched": big.id}
    world.remove_rules([big.id, over.id])
    assert empty(world)


def test_an_unknown_rule_cannot_be_removed(world: Mdp) -> None:
    (rule,) = world.add_rules([A])
    with pytest.raises(NotFound, match="99"):
        world.remove_rules([rule.id, 99])
    check(world, {rule.id: A}, {rule.id: rule.id})


def test_a_cycle_of_rules_is_refused_and_nothing_changes(world: Mdp) -> None:
    texts_of = {"one": "search Book b register b", "two": "search one b register b where b.pages = 1"}
    one, two = world.add_rules(list(texts_of.items()))
    ids = {"one": one.id, "two": two.id}
    for rule, text in ((one, "search one b register b"), (one, "search two b register b")):
        with pytest.raises((InvalidRule, Conflict), match="searches itself"):
            world.change_rule(rule.id, text)
        check(world, texts_of, ids)
    with pytest.raises(InvalidRule, match="searches itself"):
        world.add_rules([("a", "search b x register x"), ("b", "search a x register x")])
    check(world, texts_of, ids)


def test_a_changed_rule_changes_the_rules_that_search_it(world: Mdp) -> None:
    rules = {
        "one": "search Book b register b where b.pages > 5",
        "two": "search one b register b where b.total = 1",
        "three": "search two b register b where b.name = 'a'",
    }
    ids: dict[object, int] = {name: added.id for name, added in zip(rules, world.add_rules(list(rules.items())),
                                                                   strict=True)}  # fmt: skip
    world.put_one("http://d/1", "<http://r/1> a :Book ; :pages 6 ; :total 1 ; :name 'a' .")
    assert [world.results_of(number) for number in ids.values()] == [{"http://r/1"}] * 3
    rules["one"] = "search Book b register b where b.pages > 6"
    world.change_rule(ids["one"], rules["one"])
    check(world, rules, ids)
    assert [world.results_of(number) for number in ids.values()] == [set()] * 3
    rules["one"] = "search Agent b register b"
    world.change_rule(ids["one"], rules["one"])
    check(world, rules, ids)
    rules["two"] = "search Book b register b"
    world.change_rule(ids["two"], rules["two"])
    check(world, rules, ids)
    world.remove_rules([ids["one"]])
    world.remove_rules([ids["three"], ids["two"]])
    assert empty(world)


def test_a_change_that_would_break_a_searching_rule_is_refused_and_names_it(world: Mdp) -> None:
    world.put_schema(SCHEMA + ":shelf rdfs:domain :Place ; rdfs:range xsd:integer . @prefix o: <http://o/> ."
                     " o:shelf rdfs:domain :Book ; rdfs:range xsd:string .")  # fmt: skip
    one, _ = world.add_rules(
        [("one", "search Book b register b"), ("two", "search one b register b where b.shelf = 'a'")]
    )
    with pytest.raises(Conflict, match="two"):
        world.change_rule(one.id, "search Place p register p")


# -- random rules


NAMES = ["first", "second", "third"]


@contextmanager
def fresh(mdp: Mdp) -> Iterator[Mdp]:
    """The same database without rules, and a process with an empty cache."""
    mdp.run(f"truncate {', '.join(['rules', *GRAPH, *SUSPENDED])}")
    yield type(mdp)(mdp.engine)


class Rulebase:
    """The rules of an MDP with their texts."""

    def __init__(self, mdp: Mdp) -> None:
        self.mdp = mdp
        self.rules: dict[object, RuleText] = {}
        self.ids: dict[object, int] = {}

    def check(self) -> None:
        check(self.mdp, {name: rule.text for name, rule in self.rules.items()}, self.ids)

    def searchable(self, name: object) -> list[str]:
        earlier = NAMES[: NAMES.index(name)] if name in NAMES else NAMES
        return [other for other in earlier if other in self.rules]

    def add(self, drafts: Iterable[tuple[str | None, RuleText]]) -> None:
        drafts = list(drafts)
        added = self.mdp.add_rules([(name, rule.text) if name else rule.text for name, rule in drafts])
        for (name, rule), answer in zip(drafts, added, strict=True):
            self.rules[name or answer.id], self.ids[name or answer.id] = rule, answer.id

    def change(self, name: object, rule: RuleText) -> None:
        self.mdp.change_rule(self.ids[name], rule.text)
        self.rules[name] = rule

    def remove(self, names: Iterable[object]) -> None:
        names = list(names)
        self.mdp.remove_rules([self.ids[name] for name in names])
        for name in names:
            del self.rules[name], self.ids[name]

    def are_searched(self, names: set[object]) -> bool:
        return any(rule.searches & names for name, rule in self.rules.items() if name not in names)


@pytest.mark.full
@settings(max_examples=EXAMPLES, deadline=None,
          suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture,
                                 HealthCheck.data_too_large])  # fmt: skip
@given(data=st.data())
def test_random_additions_changes_and_removals_of_rules_leave_exact_counts(world: Mdp, data: st.DataObject) -> None:
    with fresh(world) as mdp:
        base = Rulebase(mdp)
        for _ in range(data.draw(st.integers(2, 8))):
            act: Callable[[Rulebase, st.DataObject], None] = data.draw(st.sampled_from([add, add, change, remove]))
            act(base, data)
            base.check()
        base.remove(list(base.rules))
        assert empty(mdp)


def draw_rule(base: Rulebase, data: st.DataObject, name: object) -> RuleText:
    alike = [rule for rule in base.rules.values() if not rule.searches]
    if alike and data.draw(st.booleans()):
        return data.draw(variants(data.draw(st.sampled_from(alike))))
    return data.draw(rule_texts(base.searchable(name), small=True))


def add(base: Rulebase, data: st.DataObject) -> None:
    drafts: list[tuple[str | None, RuleText]] = []
    for _ in range(data.draw(st.integers(1, 4))):
        free = [name for name in NAMES if name not in base.rules and name not in dict(drafts)]
        name = data.draw(st.sampled_from([None, *free]))
        drafts.append((name, draw_rule(base, data, name)))
    base.add(drafts)


def change(base: Rulebase, data: st.DataObject) -> None:
    if base.rules:
        name = data.draw(st.sampled_from(list(base.rules)))
        base.change(name, draw_rule(base, data, name))


def remove(base: Rulebase, data: st.DataObject) -> None:
    if not base.rules:
        return
    names = set(data.draw(st.lists(st.sampled_from(list(base.rules)), min_size=1, unique=True)))
    if base.are_searched(names):
        with pytest.raises(Conflict):
            base.remove(names)
    else:
        base.remove(names)


# -- concurrency


def test_concurrent_additions_and_removals_of_rules_leave_exact_counts(world: Mdp) -> None:
    kinds = ["search Book b register b where b.author.name = '{}' and b.pages > {}",
             "search Book b register b where b.pages > {1} or b.author.name = '{0}'",
             "search Agent a register a where a.name = '{}'",
             "search Book a, Book b register a where a.pages = b.pages and b.total < {1}"]  # fmt: skip
    ready = threading.Barrier(2)

    def work(number: int) -> dict[object, str]:
        mine = type(world)(world.engine)
        kept: dict[object, str] = {}
        ready.wait(60)
        for step in range(12):
            texts_of = [kind.format(step % 3, (step + number) % 4) for kind in kinds]
            added = mine.add_rules(texts_of[step % 2 :])
            mine.remove_rules([rule.id for rule in added[:2]])
            kept |= dict(zip([rule.id for rule in added[2:]], texts_of[step % 2 :][2:], strict=True))
            if kept and step % 3 == 0:
                mine.change_rule(next(iter(kept)), texts_of[1])  # type: ignore[call-overload]
                kept[next(iter(kept))] = texts_of[1]
            if step % 4 == 3:
                gone = list(kept)[::2]
                mine.remove_rules(gone)  # type: ignore[arg-type]
                for rule in gone:
                    del kept[rule]
        return kept

    with ThreadPoolExecutor(2) as pool:
        left = [job.result(120) for job in [pool.submit(work, number) for number in range(2)]]
    rules = left[0] | left[1]
    assert len(rules) == len(left[0]) + len(left[1]) > 0
    check(world, rules, {number: number for number in rules})  # type: ignore[misc]
    world.remove_rules(list(rules))  # type: ignore[arg-type]
    assert empty(world)
