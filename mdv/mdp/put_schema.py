"""Put the schema: a transaction of its own, and a run of the filter.

A schema can grow at any time. What would break a stored document or a registered rule is refused. What comes to match
through it, or ceases to (a new subclass, values that become numbers), is found like any other change: rules whose
meaning the new schema touches are evaluated before and after.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from secrets import randbits

from sqlalchemy import Connection

from mdv.db import filter as db
from mdv.db.exchange import Exchange
from mdv.db.graph import Graph, Known, StoredRule
from mdv.db.lmrs import names_of
from mdv.db.publish import Publication
from mdv.db.schemas import (
    Concerned,
    StoredValue,
    Told,
    count_news,
    keep_schema_version,
    retype_values,
    stored_values,
)
from mdv.db.state import State, lock_state
from mdv.db.vocabulary import Vocabulary
from mdv.errors import BreakingSchema, Flaw, InvalidDocument, InvalidRule, PreconditionFailed
from mdv.mdp.evaluate import full_results
from mdv.mdp.groups import CompiledGroup
from mdv.mdp.merge import Planned, merge_rules
from mdv.mdp.publish import MOST_NAMED, strong_numbers
from mdv.mdp.reasons import recount
from mdv.mdp.rules import MOST_SECONDS, Library, Rules, find_first_results
from mdv.mdp.schemas import SchemaInForce, Schemas, in_force
from mdv.model import RDF, RDF_TYPE, RDFS, Document
from mdv.rdf.compare import Change, compare
from mdv.rdf.schema import PropertyChange, Schema, differences
from mdv.rdf.validate import Typing, validate
from mdv.rdf.values import Kind

MAX_NAMED = 20
"""How many of the documents or rules that a schema would break are named."""


@dataclass(frozen=True, slots=True)
class SchemaOutcome:
    """The version that holds now, where in the history it stands, whether this call changed anything, and what.

    `rules_anew`: the rules that are taken apart otherwise. `matched`, `unmatched`: the resources that some LMR's rules
    come to match, or cease to. `sent`: those that some LMR is sent. `left`: those that leave some LMR. `lmrs`: the LMRs
    that are told, if only the schema; `concerned`: the first of those that hear of resources.
    """

    version: int
    position: int
    changed: bool
    classes: int
    properties: int
    changes: tuple[Change, ...] = ()
    changes_left_out: int = 0
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    rules_anew: int = 0
    matched: int = 0
    unmatched: int = 0
    sent: int = 0
    left: int = 0
    lmrs: int = 0
    concerned: tuple[Concerned, ...] = ()


def put_schema(
    connection: Connection,
    document: Document,
    schemas: Schemas,
    vocabulary: Vocabulary,
    rules: Rules,
    if_match: Collection[str] | None = None,
) -> SchemaOutcome:
    """Replace the schema, if everything stored can live with the new one."""
    state = lock_state(connection)
    if if_match is not None and "*" not in if_match and str(state.schema_version) not in if_match:
        raise PreconditionFailed(f"The schema's version is {state.schema_version}, not {', '.join(if_match)}.")
    old = schemas.at(connection, state.schema_version)
    new = in_force(state.schema_version + 1, document.statements, dict(document.prefixes))
    declared = (_count_own(new.schema.classes), _count_own(new.schema.properties))
    if new.statements == old.statements and new.schema.prefixes == old.schema.prefixes:
        return SchemaOutcome(old.version, state.position, False, *declared)
    _refuse_breaking(connection, old.schema, new.schema)
    retyped = _retyped_properties(old.schema, new.schema)
    graph = Graph(connection)
    read_anew = _read_rules_anew(connection, graph, rules, old, new)
    before = rules.groups(connection, state, old, vocabulary)
    touched = [group for group in before.groups if _touches(group, old.schema, new.schema, retyped)]
    matched = full_results(connection, before, touched)
    if retyped:
        retype_values(connection, _retyped(stored_values(connection, retyped), new.typing))
    state = replace(state, position=state.position + 1, schema_version=new.version)
    keep_schema_version(connection, new.version, state.position, new.statements, document.prefixes)
    if before.groups:
        last = state.last_atomic_rule
        state, new_ends = _merge_anew(connection, graph, read_anew, before.known, state, new, vocabulary, rules)
        after = rules.groups(connection, state, new, vocabulary, fresh=True)
        still = [after.by_id[group.group.group_id] for group in touched if group.group.group_id in after.by_id]
        db.keep_difference(connection, matched, full_results(connection, after, still), new_ends, last)
        if state.lmrs and (touched or read_anew):
            recount(connection, after, state)
    told = _publish(connection, state, old, new, vocabulary) if state.lmrs else Told()
    found = compare(old.schema, new.schema)
    return SchemaOutcome(
        new.version, state.position, True, *declared, found.changes, found.left_out, found.counts, len(read_anew),
        told.matched, told.unmatched, told.sent, told.left, told.lmrs, told.concerned,
    )  # fmt: skip


def _publish(
    connection: Connection, state: State, old: SchemaInForce, new: SchemaInForce, vocabulary: Vocabulary
) -> Told:
    """Tell every LMR the schema, and what enters its closure, or leaves it, as references became strong or weak."""
    ids = vocabulary.ids(old.strong | new.strong)
    exchange = Exchange(connection)
    publication = Publication(exchange, state.position, state.last_offset, strong_numbers(new, vocabulary))
    publication.of_schema([ids[p] for p in new.strong - old.strong], [ids[p] for p in old.strong - new.strong])
    exchange.send()
    return count_news(connection, MOST_NAMED)


def _read_rules_anew(
    connection: Connection, graph: Graph, rules: Rules, old: SchemaInForce, new: SchemaInForce
) -> list[tuple[StoredRule, Planned]]:
    """The rules that are taken apart otherwise under the new schema; one that has no meaning there refuses it."""
    changed: list[tuple[StoredRule, Planned]] = []
    broken: list[tuple[StoredRule, str, str | None]] = []
    anew = Rules()
    for stored in graph.all_rules():
        library = Library(graph, stored.owner, {})
        try:
            normal, plan, constants = anew.read(stored.text, new, library)
        except InvalidRule as error:
            broken.append((stored, error.flaws[0].message, error.flaws[0].hint))
            continue
        before, was, _ = rules.read(stored.text, old, library)
        if before.searches != normal.searches:
            (name, *_) = sorted(before.searches ^ normal.searches)
            message = f"it searches the rule {name}, which would become a class"
            broken.append((stored, message, "a class wins over a rule of the same name"))
            continue
        if [part.digest for part in was] != [part.digest for part in plan]:
            changed.append((stored, Planned(stored.id, stored.owner, plan, constants)))
    if broken:
        named = broken[:MAX_NAMED]
        owners = names_of(connection, {stored.owner for stored, _, _ in named})
        flaws = [
            Flaw(f"{_rule_name(stored, owners)}: {message}", value=stored.text, hint=hint)
            for stored, message, hint in named
        ]
        raise BreakingSchema(
            f"{len(broken):,} registered rule{'s' if len(broken) > 1 else ''} would have no meaning any more: "
            f"{flaws[0].message}. Change or end them first, or let the schema keep what they speak of.",
            flaws,
        )
    return changed


def _rule_name(rule: StoredRule, owners: Mapping[int, str]) -> str:
    of = f" of {owners[rule.owner]}" if rule.owner in owners else ""
    return f"rule {rule.name or rule.id}{of}"


def _touches(group: CompiledGroup, old: Schema, new: Schema, retyped: Collection[str]) -> bool:
    """Whether the new schema changes what the rules of a group match."""
    pattern = group.group.pattern
    classes = {iri for node in pattern.nodes for iri in node}
    properties = {RDF_TYPE, *pattern.properties}
    for iri in classes:
        was, is_now = old.classes.get(iri), new.classes.get(iri)
        if set(was.subclasses if was else ()) != set(is_now.subclasses if is_now else ()):
            return True
    for iri in properties:
        before, after = old.property_of(iri), new.property_of(iri)
        below = set(before.subproperties if before else (iri,))
        if below != set(after.subproperties if after else (iri,)) or below & set(retyped):
            return True
    return False


def _merge_anew(
    connection: Connection,
    graph: Graph,
    changed: list[tuple[StoredRule, Planned]],
    known: Known,
    state: State,
    schema: SchemaInForce,
    vocabulary: Vocabulary,
    rules: Rules,
) -> tuple[State, set[int]]:
    """Put rules into the graph as the new schema takes them apart, and let every process read the groups again."""
    detached = graph.detach([stored.id for stored, _ in changed])
    merged = merge_rules(graph, [planned for _, planned in changed], known, state.last_atomic_rule)
    graph.drop(detached)
    state = replace(state, last_atomic_rule=merged.last_atomic_rule, graph_version=randbits(62))
    graph.execute(
        "advance_rules", position=state.position, last_rule=state.last_rule, last_atomic_rule=state.last_atomic_rule,
        graph_version=state.graph_version,
    )  # fmt: skip
    with db.refusing_slow("The rules took too long to evaluate under the new schema, and nothing was changed."):
        graph.forget_results(MOST_SECONDS)
        exchange = Exchange(connection)
        find_first_results(connection, merged, state, schema, vocabulary, rules, exchange)
        exchange.send()
    return state, {end.rule_id for end in merged.new_ends}


def _count_own(terms: Iterable[str]) -> int:
    return sum(not term.startswith((RDF, RDFS)) for term in terms)


def _refuse_breaking(connection: Connection, old: Schema, new: Schema) -> None:
    """Validate again what the stored documents say with the properties that changed."""
    concerned = _concerned_properties(old, new)
    if concerned is not None and not concerned:
        return
    broken: list[Flaw] = []
    for uri, values in groupby(stored_values(connection, concerned), key=itemgetter(0)):
        try:
            validate(Document(uri, tuple(value.statement for value in values)), new)
        except InvalidDocument as error:
            broken.append(Flaw(f"{uri}: {error.flaws[0].message}", subject=error.flaws[0].subject,
                               property=error.flaws[0].property, value=error.flaws[0].value))  # fmt: skip
    if broken:
        named = broken[:MAX_NAMED]
        more = f", and {len(broken) - MAX_NAMED:,} more" if len(broken) > MAX_NAMED else ""
        raise BreakingSchema(
            f"{len(broken):,} stored document{'s' if len(broken) > 1 else ''} would no longer be valid{more}. "
            "Change or delete them first, or let the schema allow what they say.",
            named,
        )


def _concerned_properties(old: Schema, new: Schema) -> frozenset[str] | None:
    """The properties whose stored values the new schema might refuse; None where that is every property."""
    difference = differences(old, new)
    if difference.closed:
        return None
    names = {name for name in difference.added_properties if _may_be_stored(name, old)}
    names |= {change.new.iri for change in difference.changed_properties if _asks_more(change, new)}
    names |= {p.iri for p in new.properties.values() if p.range in old.datatypes ^ new.datatypes}
    # A value of a property is one of its superproperties: relatives count together.
    above = {up for name in names for up in new.properties[name].superproperties}
    names |= {down for name in above for down in new.properties[name].subproperties}
    if not new.open:
        names |= difference.removed_properties
        if difference.removed_classes:
            names.add(RDF_TYPE)
    return frozenset(names)


def _may_be_stored(name: str, schema: Schema) -> bool:
    return schema.open or schema.property_of(name) is not None


def _asks_more(change: PropertyChange, new: Schema) -> bool:
    """Whether a property may refuse what it accepted: by its range, or as one with a single value.

    Where both ranges are classes nothing is asked: a reference may lead to a resource of another class.
    """
    before, after = change.old.range, change.new.range
    if after is not None and after != before and (before is None or new.is_datatype(before) or new.is_datatype(after)):
        return True
    gained = set(change.new.superproperties) - set(change.old.superproperties)
    return (change.old.set_valued and not change.new.set_valued) or any(
        not new.properties[name].set_valued for name in gained
    )


def _retyped_properties(old: Schema, new: Schema) -> frozenset[str]:
    """The properties whose stored values may have another type from now on."""
    names = old.properties.keys() | new.properties.keys()
    return frozenset(n for n in names if _may_be_stored(n, old) and _typed_ranges(n, old) != _typed_ranges(n, new))


def _typed_ranges(name: str, schema: Schema) -> list[str | None]:
    """What values of a property compare as, other than text: by its own range, and as values of its superproperties."""
    declared = schema.property_of(name)
    above = [schema.property_of(up) for up in declared.superproperties] if declared else []
    return [p.range for p in above if p is not None and p.kind is not Kind.TEXT]


def _retyped(values: Iterable[StoredValue], typing: Typing) -> Iterator[tuple[str, object, object, object]]:
    for value in values:
        typed = typing.typed_values(value.statement.property, value.statement.object)
        if typed != value.typed:
            yield (value.row, *typed)
