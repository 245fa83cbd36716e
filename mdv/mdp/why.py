"""Why: the reasons that a resource is, or is not, at an LMR.

    selected   the rules of the LMR that select it, each with the resources and values that satisfy it
    reached    the shortest chain of strong references to it, from something that is selected
    neither    the rules that come nearest, each with the first predicate that fails

Which rules select it is asked of the groups, as the filter does, however many rules there are. The first predicate that
fails is the one after the longest beginning of the normal form that some choice of resources satisfies: the class of
what is registered, then predicate after predicate, each with the classes of the variables that come with it.
"""

from __future__ import annotations

import operator
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from sqlalchemy import BigInteger, Connection, FromClause, Select, bindparam, literal_column, select, true

from mdv.db import query as db
from mdv.db.explain import KnownNames
from mdv.db.filter import Compiled, compiled, limit_time
from mdv.db.graph import Graph, StoredRule
from mdv.db.read import direct_classes
from mdv.db.state import read_state
from mdv.db.vocabulary import Vocabulary
from mdv.db.why import Evidence, Reference, StoredValue, giving_up
from mdv.errors import BadRequest, TooCostly
from mdv.mdp.groups import TABLES, CompiledGroup, Groups, constant_parameters, constant_values, states
from mdv.mdp.rules import Library, Rules
from mdv.mdp.schemas import SchemaInForce, Schemas
from mdv.model import RDFS_RESOURCE, is_blank
from mdv.query.compile import Conditions, Names, State, all_matches, all_reached, needs_proof
from mdv.rdf.parse import is_absolute_iri
from mdv.rdf.schema import Schema
from mdv.rdf.values import Kind
from mdv.rules.ast import Operator
from mdv.rules.normal import (
    Access,
    Comparison,
    Conjunction,
    Constant,
    Link,
    NormalPredicate,
    NormalRule,
    Sort,
    Variable,
)
from mdv.rules.normalise import normalise
from mdv.rules.parse import parse
from mdv.rules.pattern import Pattern, pattern_with_nodes
from mdv.rules.show import show

MOST_RULES = 20
"""Rules that are shown of those that select a resource."""
MOST_NEAREST = 5
MOST_CANDIDATES = 200
"""Rules that are tried for the nearest."""
MOST_DOCUMENTS = 20
MOST_BINDINGS = 100
MOST_SHOWN = 3
"""Values that a sentence names."""
MOST_CHARACTERS = 200
MOST_NODES = 128
"""A rule with more variables than this, in one conjunction, is named and not gone into."""
MOST_REFERRERS = 20_000
"""On one step of a chain."""
MOST_STEPS = 1000
SECONDS = 10
NEAREST_SECONDS = 4.0

_TOO_COSTLY = (
    f"To find the rules that select this resource took longer than {SECONDS} s, and was given up. Some rule of this LMR"
    " is very costly: `mdv rule explain` tells what a rule costs."
)

HOLDS: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQ: operator.eq,
    Operator.NE: operator.ne,
    Operator.LT: operator.lt,
    Operator.LE: operator.le,
    Operator.GT: operator.gt,
    Operator.GE: operator.ge,
    Operator.CONTAINS: operator.contains,
    Operator.NOT_CONTAINS: lambda text, part: part not in text,
}


# --- what is told ---


@dataclass(frozen=True, slots=True)
class Found:
    """What a resource has there; with no property, its URI. Without a value: it has too many to be looked through."""

    resource: str
    property: str | None
    value: str | None
    is_uri: bool = False

    def as_dict(self) -> dict[str, Any]:
        kind = None if self.value is None else "uri" if self.is_uri else "literal"
        return {"resource": self.resource, "property": self.property, "value": self.value, "type": kind}


@dataclass(frozen=True, slots=True)
class Satisfied:
    """A predicate that holds, with the value that satisfies it; between two variables, with the other's, too."""

    predicate: str
    operator: str
    constant: str | None
    found: Found
    other: Found | None = None

    def as_dict(self) -> dict[str, Any]:
        body = {"predicate": self.predicate, **self.found.as_dict(), "operator": self.operator}
        return body | ({"constant": self.constant} if self.other is None else {"other": self.other.as_dict()})


@dataclass(frozen=True, slots=True)
class Selecting:
    """A rule that selects the resource: which resources its variables stand for, and what holds of them."""

    id: int
    name: str | None
    rule: str
    binding: Mapping[str, str] = field(default_factory=dict)
    predicates: tuple[Satisfied, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "rule": self.rule,
            "binding": dict(self.binding),
            "predicates": [predicate.as_dict() for predicate in self.predicates],
        }


@dataclass(frozen=True, slots=True)
class Failing:
    """A rule that does not select the resource, and the first predicate that fails.

    `predicate` is None where it is a class. `satisfied` counts what holds before it, the class of what is registered
    included, out of `of`; `part` says in which conjunction of the normal form.
    """

    id: int
    name: str | None
    rule: str
    predicate: str | None
    sentence: str
    satisfied: int
    of: int
    part: int = 0
    found: tuple[Found, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "rule": self.rule,
            "predicate": self.predicate,
            "sentence": self.sentence,
            "satisfied": self.satisfied,
            "of": self.of,
            "part": self.part,
            "found": [found.as_dict() for found in self.found],
        }


@dataclass(frozen=True, slots=True)
class ChainStep:
    """A strong reference."""

    resource: str
    property: str
    target: str

    def as_dict(self) -> dict[str, str]:
        return {"resource": self.resource, "property": self.property, "target": self.target}


@dataclass(frozen=True, slots=True)
class NamedRule:
    """A rule by its number, and its name if it has one."""

    id: int
    name: str | None

    def as_dict(self) -> dict[str, Any]:
        return {"id": self.id, "name": self.name}


@dataclass(frozen=True, slots=True)
class Chain:
    """Strong references from a selected resource, and rules that select that one; with `more` there are others."""

    rules: tuple[NamedRule, ...]
    more: bool
    steps: tuple[ChainStep, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "rules": [rule.as_dict() for rule in self.rules],
            "more": self.more,
            "steps": [step.as_dict() for step in self.steps],
        }


@dataclass(frozen=True, slots=True)
class Why:
    """Why a resource is, or is not, at an LMR, at one position.

    `held`: the LMR has it, or gets it with the feed up to that position. With `more`, other rules select it, too.
    """

    resource: str
    lmr: int
    position: int
    held: bool
    selected: bool
    described: bool
    sentence: str
    documents: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    rules: tuple[Selecting, ...] = ()
    more: bool = False
    chain: Chain | None = None
    nearest: tuple[Failing, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "resource": self.resource,
            "lmr": self.lmr,
            "position": self.position,
            "held": self.held,
            "selected": self.selected,
            "described": self.described,
            "sentence": self.sentence,
            "documents": list(self.documents),
            "classes": list(self.classes),
            "rules": [rule.as_dict() for rule in self.rules],
            "more": self.more,
            "chain": self.chain.as_dict() if self.chain is not None else None,
            "nearest": [rule.as_dict() for rule in self.nearest],
        }


def why_lines(why: Why | Mapping[str, Any]) -> list[str]:
    """The reasons for people, from what was found or from its JSON.

    >>> why_lines(Why("http://a/b", 1, 7, False, False, False, "Nothing is said of <http://a/b>."))
    ['Nothing is said of <http://a/b>.']
    """
    return list(_lines(why.as_dict() if isinstance(why, Why) else why))


def _lines(body: Mapping[str, Any]) -> Iterator[str]:
    yield body["sentence"]
    for rule in body["rules"]:
        yield f"  {_rule_name(rule)}: {_one_line(rule['rule'])}"
        for name, uri in rule["binding"].items():
            yield f"    {name} is <{uri}>"
        for held in rule["predicates"]:
            other = f" and {held['other']['value']}" if held.get("other") else ""
            yield f"    {held['predicate']}: {held['value']}{other}"
    if body["more"]:
        yield "  and others"
    if body["chain"] is not None:
        others = " and others" if body["chain"]["more"] else ""
        names = ", ".join(map(_rule_name, body["chain"]["rules"])) or "no rule"
        for number, step in enumerate(body["chain"]["steps"]):
            start = f"<{step['resource']}> (selected by {names}{others})" if number == 0 else f"<{step['resource']}>"
            yield f"  {start} refers by {step['property']} to"
        yield f"  <{body['resource']}>"
    if body["nearest"]:
        yield "The rules that come nearest:"
    for rule in body["nearest"]:
        yield f"  {_rule_name(rule)}: {rule['sentence']}"


def _rule_name(rule: Mapping[str, Any]) -> str:
    return f"rule {rule['id']}" + (f" ({rule['name']})" if rule["name"] else "")


def _one_line(text: str) -> str:
    return " ".join(text.split())


# --- the question ---


def explain_resource(
    connection: Connection, lmr: int, uri: str, schemas: Schemas, vocabulary: Vocabulary, rules: Rules
) -> Why:
    """Why the resource of that URI is, or is not, at an LMR: all of it from one moment, and nothing is changed."""
    if not is_absolute_iri(uri):
        raise BadRequest(f"{uri!r} is not an absolute URI: write it in full, http://…")
    with db.reading(connection, SECONDS, _TOO_COSTLY):
        return _Question(connection, lmr, uri, schemas, vocabulary, rules).answer()


class _Question:
    """One resource and one LMR."""

    def __init__(
        self, connection: Connection, lmr: int, uri: str, schemas: Schemas, vocabulary: Vocabulary, rules: Rules
    ) -> None:
        self._connection, self._lmr, self._uri = connection, lmr, uri
        self._deadline = time.monotonic() + SECONDS
        state = read_state(connection)
        self._position = state.position
        self._in_force: SchemaInForce = schemas.at(connection, state.schema_version)
        self._schema = self._in_force.schema
        self._evidence = Evidence(connection)
        self._graph = Graph(connection)
        self._groups: Groups = rules.groups(connection, state, self._in_force, vocabulary)
        self._beginnings = Beginnings(connection, self._groups.names)
        self._library = Library(self._graph, lmr, {})

    def answer(self) -> Why:
        number = self._evidence.number(self._uri)
        documents = self._evidence.documents(number, MOST_DOCUMENTS) if number is not None else []
        reasons = self._evidence.reasons(self._lmr, number) if number is not None else None
        chain = self._chain(number) if number is not None and reasons == 0 else None
        if number is None or not documents:
            return self._told(False, False, False, _unsaid(self._uri, chain), chain=chain)
        classes = direct_classes(self._connection, [number]).get(number, [RDFS_RESOURCE])
        about: dict[str, Any] = {"documents": tuple(documents), "classes": tuple(classes), "chain": chain}
        groups = self._fitting(classes)
        found = self._selecting(number, groups, MOST_RULES + 1)
        if found:
            selecting = tuple(self._selects(rule, number) for rule in self._graph.rules(found[:MOST_RULES]))
            more = len(found) > MOST_RULES
            sentence = f"<{self._uri}> is at the LMR: {_counted(len(selecting), more)} it."
            return self._told(True, True, True, sentence, rules=selecting, more=more, **about)
        nearest = self._nearest(number, classes, groups)
        sentence = f"<{self._uri}> {self._unselected(reasons is not None, chain)}."
        return self._told(reasons is not None, False, True, sentence, nearest=nearest, **about)

    def _told(self, held: bool, selected: bool, described: bool, sentence: str, **rest: Any) -> Why:
        return Why(self._uri, self._lmr, self._position, held, selected, described, sentence, **rest)

    def _unselected(self, held: bool, chain: Chain | None) -> str:
        if chain is not None:
            far = f"over {len(chain.steps)} strong references" if len(chain.steps) > 1 else "by a strong reference"
            return f"is at the LMR: no rule selects it, but <{chain.steps[0].resource}> leads to it {far}"
        if held:
            return "is at the LMR: no rule selects it, but strong references lead to it"
        if not self._evidence.groups(self._lmr):
            return "is not at the LMR, which has no rules"
        return "is not at the LMR: none of its rules selects it, and no strong reference leads to it"

    # -- which rules select it

    def _fitting(self, classes: Sequence[str]) -> list[CompiledGroup]:
        """The groups of this LMR's rules that could register an instance of these classes."""
        mine = self._evidence.groups(self._lmr)
        return [
            group
            for group in self._groups.groups
            if group.group.group_id in mine
            and all(is_instance(classes, class_iri, self._schema) for class_iri in group.group.pattern.nodes[0])
        ]

    def _selecting(self, number: int, groups: Sequence[CompiledGroup], most: int) -> list[int]:
        """The first rules of this LMR that select a resource."""
        now, _, _ = states(self._groups.names)
        found: set[int] = set()
        for compiled_group in groups:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise TooCostly(_TOO_COSTLY)
            limit_time(self._connection, ceil(left))
            found.update(self._selecting_of(now, compiled_group, number, most))
        return sorted(found)[:most]

    def _selecting_of(self, now: State, compiled_group: CompiledGroup, number: int, most: int) -> list[int]:
        group = compiled_group.group
        if not group.pattern.is_range:
            return self._evidence.owned(self._lmr, all_matches(now, TABLES, group), most, roots=[number])
        for _, *ends in self._evidence.run(compiled(all_reached(now, group.pattern)), roots=[number]):
            if ends[0] is not None:
                how = group.pattern.leaves[0].operator
                low, high = ends
                return self._evidence.owned_range(
                    self._lmr, group.group_id, group.predicates[0], how, (low, high), most
                )
        return []

    def _read(self, rule: StoredRule) -> tuple[NormalRule, frozenset[str]]:
        """What a rule means, and the variables that it writes itself."""
        parsed = parse(rule.text)
        written = frozenset(extension.variable.text for extension in parsed.search)
        return normalise(parsed, self._schema, self._library.parsed), written

    def _selects(self, rule: StoredRule, number: int) -> Selecting:
        """The first conjunction that holds, with a choice of resources that satisfies it."""
        normal, written = self._read(rule)
        for conjunction in normal.conjunctions:
            if len(conjunction.variables) <= MOST_NODES and self._beginnings.holds(conjunction, number):
                binding = self._beginnings.bindings(conjunction, number, 1)[0]
                teller = _Teller(self._evidence, self._schema, self._groups.names, self._uri, conjunction, written)
                return Selecting(rule.id, rule.name, rule.text, *teller.satisfied(binding))
        return Selecting(rule.id, rule.name, rule.text)

    # -- which come nearest

    def _nearest(self, number: int, classes: Sequence[str], fitting: Sequence[CompiledGroup]) -> tuple[Failing, ...]:
        """Of some rules, those that get furthest."""
        deadline = min(self._deadline, time.monotonic() + NEAREST_SECONDS)
        tries: list[tuple[int, int, int, _Try]] = []
        alike: Counter[Pattern] = Counter()
        with giving_up(self._connection, NEAREST_SECONDS):
            for rule in self._candidates([group.group.group_id for group in fitting]):
                if time.monotonic() > deadline:
                    break
                if (tried := self._try(rule, number, classes)) is not None:
                    kind = pattern_with_nodes(tried.conjunction)[0]
                    tries.append((-tried.satisfied, alike[kind], rule.id, tried))
                    alike[kind] += 1
        failing: list[Failing] = []
        with giving_up(self._connection, NEAREST_SECONDS):
            # Of rules that get as far, those come first that differ in more than constants.
            for _, _, _, tried in sorted(tries, key=lambda item: item[:3])[:MOST_NEAREST]:
                failing.append(self._fails(tried, number, classes))
        return tuple(failing)

    def _candidates(self, fitting: Sequence[int]) -> list[StoredRule]:
        """Some rules of each kind whose class fits; others only where there are none."""
        groups = fitting or sorted(self._evidence.groups(self._lmr))
        if not groups:
            return []
        groups = groups[:MOST_CANDIDATES]
        each = max(1, MOST_CANDIDATES // len(groups)) if fitting else MOST_NEAREST
        return self._graph.rules(self._evidence.rules_of_groups(self._lmr, groups, each, MOST_CANDIDATES))

    def _try(self, rule: StoredRule, number: int, classes: Sequence[str]) -> _Try | None:
        """How far a rule gets, by the conjunction that gets furthest."""
        normal, written = self._read(rule)
        best: _Try | None = None
        for part, conjunction in enumerate(normal.conjunctions):
            if len(conjunction.variables) > MOST_NODES:
                continue
            satisfied = self._satisfied(conjunction, number, classes)
            if best is None or satisfied > best.satisfied:
                best = _Try(rule, conjunction, part, written, satisfied, len(stages(conjunction)))
        return best

    def _satisfied(self, conjunction: Conjunction, number: int, classes: Sequence[str]) -> int:
        """How many stages hold, all together, for some choice of resources. What begins a beginning that holds, holds
        too: so it is found by halving."""
        class_iri = next(v.class_iri for v in conjunction.variables if v.name == conjunction.register)
        if not is_instance(classes, class_iri, self._schema):
            return 0
        low, high = 1, len(stages(conjunction))
        while high - low > 1:
            middle = (low + high) // 2
            if self._beginnings.holds(beginning(conjunction, middle), number):
                low = middle
            else:
                high = middle
        return low

    def _fails(self, tried: _Try, number: int, classes: Sequence[str]) -> Failing:
        rule, conjunction, satisfied = tried.rule, tried.conjunction, tried.satisfied
        bindings: list[dict[str, int]] = []
        if satisfied:
            bindings = self._beginnings.bindings(beginning(conjunction, satisfied), number, MOST_BINDINGS)
        teller = _Teller(self._evidence, self._schema, self._groups.names, self._uri, conjunction, tried.written)
        predicate, sentence, found = teller.failing(stages(conjunction)[satisfied], bindings, classes)
        return Failing(
            rule.id, rule.name, rule.text, predicate, sentence, satisfied, tried.of, tried.part, tuple(found)
        )

    # -- what leads to it

    def _chain(self, number: int) -> Chain | None:
        """The shortest way back over strong references, within what the LMR holds, to something that is selected."""
        names = [iri for iri, declared in self._schema.properties.items() if declared.strong]
        strong = [known for known in KnownNames(self._connection).ids(names).values() if known]
        onward: dict[int, Reference] = {}
        level, seen = [number], {number}
        for _ in range(MOST_STEPS):
            blank = [target for target, uri in self._evidence.uris(level).items() if is_blank(uri)]
            first = self._evidence.selected_referrer(self._lmr, level, strong, blank)
            if first is not None:
                return self._chained(first, onward)
            more = self._evidence.referrers(self._lmr, level, strong, blank, seen, MOST_REFERRERS)
            if not more or time.monotonic() > self._deadline:
                return None
            onward |= {reference.resource: reference for reference in more}
            level = [reference.resource for reference in more]
            seen.update(level)
        return None

    def _chained(self, first: Reference, onward: Mapping[int, Reference]) -> Chain:
        way = [first]
        while way[-1].target in onward:
            way.append(onward[way[-1].target])
        uris = self._evidence.uris({step.resource for step in way} | {step.target for step in way})
        names = self._evidence.names({step.property for step in way})
        steps = tuple(ChainStep(uris[s.resource], names[s.property], uris[s.target]) for s in way)
        classes = direct_classes(self._connection, [first.resource]).get(first.resource, [RDFS_RESOURCE])
        found = self._selecting(first.resource, self._fitting(classes), MOST_NEAREST + 1)
        named = tuple(NamedRule(rule.id, rule.name) for rule in self._graph.rules(found[:MOST_NEAREST]))
        return Chain(named, len(found) > MOST_NEAREST, steps)


@dataclass(frozen=True, slots=True)
class _Try:
    """How far a rule gets."""

    rule: StoredRule
    conjunction: Conjunction
    part: int
    written: frozenset[str]
    satisfied: int
    of: int


def _counted(number: int, more: bool) -> str:
    if more:
        return f"more than {number} of its rules select"
    return "one of its rules selects" if number == 1 else f"{number} of its rules select"


def _unsaid(uri: str, chain: Chain | None) -> str:
    if chain is None:
        return f"Nothing is said of <{uri}>: no document describes it, so it can be at no LMR."
    return (
        f"Nothing is said of <{uri}>: it is not at the LMR, and comes as soon as some document describes it, since"
        f" <{chain.steps[0].resource}> leads to it."
    )


def is_instance(classes: Sequence[str], class_iri: str, schema: Schema) -> bool:
    """Whether what has these direct classes is an instance of a class.

    >>> from mdv.rdf.schema import EMPTY
    >>> is_instance([], RDFS_RESOURCE, EMPTY), is_instance(["http://a/B"], "http://a/C", EMPTY)
    (True, False)
    """
    if class_iri == RDFS_RESOURCE:
        return True
    declared = schema.classes.get(class_iri)
    below = declared.subclasses if declared is not None else (class_iri,)
    return any(direct in below for direct in classes)


# --- beginnings of a normal form ---


@dataclass(frozen=True, slots=True)
class Stage:
    """One more thing that is asked: a predicate, and the classes of the variables that come with it."""

    variables: tuple[Variable, ...]
    predicate: NormalPredicate | None


def accesses(predicate: NormalPredicate) -> tuple[Access, ...]:
    return (predicate.access,) if isinstance(predicate, Comparison) else (predicate.left, predicate.right)


def stages(conjunction: Conjunction) -> list[Stage]:
    """What a conjunction asks, in order: the class of what it registers, its predicates, and at last that there is
    something for each variable of which no predicate speaks."""
    left = {variable.name: variable for variable in conjunction.variables}
    found = [Stage((left.pop(conjunction.register),), None)]
    for predicate in conjunction.predicates:
        fresh = dict.fromkeys(access.variable for access in accesses(predicate))
        found.append(Stage(tuple(left.pop(name) for name in fresh if name in left), predicate))
    return found + [Stage((variable,), None) for variable in left.values()]


def beginning(conjunction: Conjunction, count: int) -> Conjunction:
    """The conjunction of the first stages alone."""
    some = stages(conjunction)[:count]
    variables = tuple(variable for stage in some for variable in stage.variables)
    predicates = tuple(stage.predicate for stage in some if stage.predicate is not None)
    return Conjunction(variables, conjunction.register, predicates)


class Beginnings:
    """Conjunctions, asked of one resource; those that differ in constants alone are compiled once."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._evidence, self._names = Evidence(connection), names
        self._whether: dict[Pattern, Compiled] = {}
        self._which: dict[tuple[Pattern, int], Compiled] = {}

    def holds(self, conjunction: Conjunction, number: int) -> bool:
        """Whether a conjunction registers the resource of that number."""
        pattern, constants, _ = pattern_with_nodes(conjunction)
        if pattern not in self._whether:
            self._whether[pattern] = compiled(_whether(states(self._names)[0], pattern))
        return bool(self._evidence.run(self._whether[pattern], root=number, **constant_values(constants)))

    def bindings(self, conjunction: Conjunction, number: int, most: int) -> list[dict[str, int]]:
        """Some choices of resources that satisfy a conjunction, by variable."""
        pattern, constants, nodes = pattern_with_nodes(conjunction)
        if (pattern, most) not in self._which:
            self._which[pattern, most] = compiled(_which(states(self._names)[0], pattern, most))
        rows = self._evidence.run(self._which[pattern, most], root=number, **constant_values(constants))
        return [{name: row[node] for name, node in nodes.items()} for row in rows]


def _root() -> FromClause:
    return select(bindparam("root", type_=BigInteger).label("id")).subquery("root")


def _whether(now: State, pattern: Pattern) -> Select[Any]:
    conditions, root = Conditions(now, pattern, constant_parameters(pattern)), _root()
    conditions.bind(0, root.c.id)
    return select(root.c.id).select_from(root).where(*conditions.of_node(0))


def _which(now: State, pattern: Pattern, most: int) -> Select[Any]:
    """Every node is bound in the outer select, the nearer ones first."""
    constants = constant_parameters(pattern)
    conditions, root = Conditions(now, pattern, constants), _root()
    source: FromClause = root
    asked: list[Any] = []
    for node, classes in enumerate(pattern.nodes):
        if node == 0:
            conditions.bind(0, root.c.id)
        else:
            for table in conditions.step(node):
                source = source.join(table, true())
        asked += now.of_classes(conditions.at(node), classes, known=not needs_proof(pattern, node))
        asked += [conditions.leaf(leaf, constants[n]) for n, leaf in enumerate(pattern.leaves) if leaf.node == node]
        asked += [conditions.tie(tie) for tie in pattern.ties if max(tie.left, tie.right) == node]
    bound = [conditions.at(node).label(f"n{node}") for node in range(len(pattern.nodes))]
    return select(*bound).select_from(source).where(*asked).limit(literal_column(str(most)))


# --- what is said of it ---


def access_text(access: Access, class_iri: str, schema: Schema) -> str:
    """`variable.property` as a rule writes it, where the variable is of that class.

    >>> from mdv.model import RDF_TYPE
    >>> from mdv.rdf.schema import EMPTY
    >>> access_text(Access("r", RDF_TYPE), RDFS_RESOURCE, EMPTY)
    'r.rdf:type?'
    """
    alone = Comparison(access, Operator.EQ, Sort.TEXT, Constant("", "''"))
    shown = show(Conjunction((Variable(access.variable, class_iri),), access.variable, (alone,)), schema)
    return shown.rpartition("\nwhere     ")[2].removesuffix(" = ''")


class _Teller:
    """Says of one conjunction what holds and what fails.

    A variable that stands for a step of a path is called by that path, as the rule was written.
    """

    def __init__(
        self,
        evidence: Evidence,
        schema: Schema,
        names: Names,
        uri: str,
        conjunction: Conjunction,
        written: frozenset[str],
    ) -> None:
        self._evidence, self._schema, self._names, self._uri = evidence, schema, names, uri
        self._conjunction = conjunction
        self._classes = {variable.name: variable.class_iri for variable in conjunction.variables}
        self._paths: dict[str, str] = {}
        self._steps: set[Link] = set()
        self._uris: dict[int, str] = {}
        for predicate in conjunction.predicates:
            if isinstance(predicate, Link):
                self._note_path(predicate, written)

    def _note_path(self, link: Link, written: frozenset[str]) -> None:
        name = link.right.variable
        if not _is_reference(link) or name in written or name in self._paths or name == self._conjunction.register:
            return
        path = self._access(link.left)
        if path not in self._paths.values():  # each `?` is its own choice
            self._paths[name] = path
            self._steps.add(link)

    # -- words

    def _access(self, access: Access) -> str:
        text = access_text(access, self._classes[access.variable], self._schema)
        return self._variable(access.variable) + text.removeprefix(access.variable)

    def _short(self, access: Access) -> str:
        return self._schema.shorten(access.property) if access.property is not None else self._variable(access.variable)

    def _variable(self, name: str) -> str:
        return self._paths.get(name, name)

    def _text(self, predicate: NormalPredicate) -> str:
        if isinstance(predicate, Link):
            if predicate in self._steps:
                return self._access(predicate.left)
            return f"{self._access(predicate.left)} {predicate.operator.value} {self._access(predicate.right)}"
        left, constant = self._access(predicate.access), _clipped(predicate.constant.shown)
        if predicate.operator is Operator.NOT_CONTAINS:
            return f"not {left} contains {constant}"
        return f"{left} {predicate.operator.value} {constant}"

    def _who(self, number: int) -> str:
        uri = self._uri_of(number)
        return "it" if uri == self._uri else f"<{uri}>"

    def _uri_of(self, number: int) -> str:
        if number not in self._uris:
            self._uris |= self._evidence.uris([number])
        return self._uris[number]

    def _class(self, class_iri: str) -> str:
        return self._schema.shorten(class_iri)

    # -- values

    def _values(self, access: Access, numbers: Sequence[int]) -> list[StoredValue]:
        assert access.property is not None
        properties = self._names.properties[access.property]
        return self._evidence.values(numbers, properties)

    def _seen(self, access: Access, number: int, sort: Sort) -> list[tuple[Any, Found]]:
        """The values of an access as they are compared, with what to show of each."""
        uri = self._uri_of(number)
        if access.property is None:
            return [(uri, Found(uri, None, uri, True))]
        return [
            (compared, _found(uri, access.property, value))
            for value in self._values(access, [number])
            if (compared := _compared(value, sort)) is not None
        ]

    # -- what holds

    def satisfied(self, binding: Mapping[str, int]) -> tuple[dict[str, str], tuple[Satisfied, ...]]:
        """The resources that the variables stand for, and the predicates with the values that satisfy them."""
        self._uris |= self._evidence.uris(set(binding.values()))
        resources = {self._variable(name): self._uris[number] for name, number in binding.items()}
        # That a step leads to where it leads is told by what it leads to.
        told = [p for p in self._conjunction.predicates if not (isinstance(p, Link) and p in self._steps)]
        return resources, tuple(self._satisfied(predicate, binding) for predicate in told)

    def _satisfied(self, predicate: NormalPredicate, binding: Mapping[str, int]) -> Satisfied:
        text, how = self._text(predicate), HOLDS[predicate.operator]
        sides = [self._seen(access, binding[access.variable], predicate.sort) for access in accesses(predicate)]
        if isinstance(predicate, Comparison):
            constant = predicate.constant.value
            found = next((shown for value, shown in sides[0] if how(value, constant)), None)
            uri = self._uri_of(binding[predicate.access.variable])
            return Satisfied(
                text, predicate.operator.value, _clipped(predicate.constant.shown),
                found or Found(uri, predicate.access.property, None),
            )  # fmt: skip
        pair = next(((a, b) for one, a in sides[0] for other, b in sides[1] if how(one, other)), None)
        unseen = [Found(self._uri_of(binding[side.variable]), side.property, None) for side in accesses(predicate)]
        left, right = pair or (unseen[0], unseen[1])
        return Satisfied(text, predicate.operator.value, None, left, right)

    # -- what fails

    def failing(
        self, stage: Stage, bindings: Sequence[Mapping[str, int]], classes: Sequence[str]
    ) -> tuple[str | None, str, list[Found]]:
        """The predicate that fails (None: a class), in a sentence, with the values that were found instead."""
        predicate = stage.predicate
        if predicate is None:
            (variable,) = stage.variables
            asked = self._class(variable.class_iri)
            if variable.name == self._conjunction.register:
                return None, f"it is {_a(_listed(map(self._class, classes), 'and'))}, not {_a(asked)}", []
            return None, f"there is no {asked}, for {self._variable(variable.name)}", []
        fresh = {variable.name for variable in stage.variables}
        known = [access for access in accesses(predicate) if access.variable not in fresh]
        instead = {access: self._instead(access, bindings) for access in known}
        sentence = self._sentence(predicate, stage.variables, bindings, instead)
        return self._text(predicate), sentence, list(dict.fromkeys(one for some in instead.values() for one in some))

    def _numbers(self, access: Access, bindings: Sequence[Mapping[str, int]]) -> list[int]:
        return sorted({binding[access.variable] for binding in bindings})[:MOST_SHOWN]

    def _instead(self, access: Access, bindings: Sequence[Mapping[str, int]]) -> list[Found]:
        numbers = self._numbers(access, bindings)
        if access.property is None:
            return [Found(self._uri_of(number), None, self._uri_of(number), True) for number in numbers]
        values = self._values(access, numbers)
        some = [_found(self._uri_of(value.resource), access.property, value) for value in values]
        return list(dict.fromkeys(some))[:MOST_SHOWN]

    def _sentence(
        self,
        predicate: NormalPredicate,
        fresh: Sequence[Variable],
        bindings: Sequence[Mapping[str, int]],
        instead: Mapping[Access, Sequence[Found]],
    ) -> str:
        for access, found in instead.items():
            if access.property is not None and not found:
                who = _listed(map(self._who, self._numbers(access, bindings)), "or")
                return f"{who} has no value of {self._schema.shorten(access.property)}"
        if isinstance(predicate, Link) and _is_reference(predicate) and fresh:
            return self._astray(predicate, fresh, bindings, instead)
        text = f"{self._text(predicate)} fails"
        name = self._short if len(instead) == 1 else self._access
        those = [f"{name(access)} is {self._those(access, found)}" for access, found in instead.items()]
        if fresh:
            nothing = _listed((f"{self._class(v.class_iri)} {self._variable(v.name)}" for v in fresh), "with any")
            return f"{text}: no {nothing} satisfies it" + "".join(f"; {part}" for part in those)
        return f"{text}: {' and '.join(those)}"

    def _those(self, access: Access, found: Sequence[Found]) -> str:
        """The values that were found, for a sentence."""
        declared = self._schema.property_of(access.property) if access.property is not None else None
        quote = "" if declared is not None and declared.kind is not Kind.TEXT else "'"
        words = (f"<{one.value}>" if one.is_uri else f"{quote}{one.value}{quote}" for one in found)
        return _listed(dict.fromkeys(words), "or")

    def _astray(
        self,
        link: Link,
        fresh: Sequence[Variable],
        bindings: Sequence[Mapping[str, int]],
        instead: Mapping[Access, Sequence[Found]],
    ) -> str:
        """Where a reference leads, or what should have led here, since it is not what was asked."""
        assert link.left.property is not None
        name = self._schema.shorten(link.left.property)
        left, right = (self._class(self._classes[side.variable]) for side in accesses(link))
        if fresh[0].name == link.left.variable:
            known = len(fresh) == 1
            target = _listed(map(self._who, self._numbers(link.right, bindings)), "or") if known else _a(right)
            return f"no {left} refers to {target} by {name}"
        for value in self._values(link.left, self._numbers(link.left, bindings)):
            if value.uri is not None:
                number = self._evidence.number(value.uri)
                said = number is not None and self._evidence.documents(number, 1)
                what = f"which is not {_a(right)}" if said else "of which nothing is said"
                return f"{name} is <{value.uri}>, {what}"
        return f"{name} is {self._those(link.left, instead[link.left])}, and refers to no resource"


def _is_reference(link: Link) -> bool:
    return link.operator is Operator.EQ and link.left.property is not None and link.right.property is None


def _compared(value: StoredValue, sort: Sort) -> Any:
    """A value as what it is compared as; None where it is not seen."""
    if sort is Sort.TEXT:
        return value.uri if value.uri is not None else value.text
    return {Sort.REFERENCE: value.uri, Sort.NUMBER: value.number, Sort.INSTANT: value.instant,
            Sort.TRUTH: value.truth}[sort]  # fmt: skip


def _found(resource: str, property_iri: str, value: StoredValue) -> Found:
    if value.uri is not None:
        return Found(resource, property_iri, value.uri, True)
    return Found(resource, property_iri, _clipped(value.text or ""))


def _clipped(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"


def _listed(words: Iterable[str], last: str) -> str:
    """
    >>> _listed(["a", "b", "c"], "or"), _listed(["a"], "or"), _listed([], "or")
    ('a, b or c', 'a', 'nothing')
    """
    some = list(words)
    if not some:
        return "nothing"
    return some[0] if len(some) == 1 else f"{', '.join(some[:-1])} {last} {some[-1]}"


def _a(noun: str) -> str:
    """
    >>> _a("Agent"), _a("v:Agent"), _a("Book")
    ('an Agent', 'a v:Agent', 'a Book')
    """
    return f"{'an' if noun[:1].lower() in 'aeio' else 'a'} {noun}"
