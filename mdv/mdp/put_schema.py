"""Replace the schema, in a transaction of its own that includes the filter and the publication.

A schema can be extended at any time. A change that would break a stored document or a registered rule is refused. A
new schema can add and remove matches, for example by a new subclass or by values that become numbers. To find them,
the rules whose meaning changes are evaluated before and after.

The schema of a backbone is decided by its lead. The other members cannot refuse it: values that it refuses stay,
untyped, and rules that are invalid under it are suspended without matches, until a schema makes them valid again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from sqlalchemy import Connection

from mdv.db import filter as db
from mdv.db.lmrs import read_lmr_names
from mdv.db.publish import RuleNotices
from mdv.db.replica.documents import (
    accept_documents,
    find_replicated,
    list_refused_documents,
    read_rows,
    refuse_documents,
)
from mdv.db.rule_graph import KnownGroups, RuleGraph, StoredRule
from mdv.db.schemas import (
    AffectedLmr,
    PublicationSummary,
    StoredValue,
    iter_stored_values,
    summarize_publication,
    update_typed_values,
)
from mdv.db.suspensions import EVENT_RESUMED, EVENT_SUSPENDED, Suspensions
from mdv.errors import BreakingSchema, Flaw, InvalidDocument, InvalidRule, PreconditionFailed
from mdv.mdp.eca.reread import breaking_eca_rules, reread_eca_rules, store_reread
from mdv.mdp.evaluate import evaluate_ends, full_results
from mdv.mdp.merge import PlannedRule, merge_rules
from mdv.mdp.precompute import MAX_EVALUATION_SECONDS
from mdv.mdp.provider import Provider
from mdv.mdp.publish import MAX_NAMED_LMRS
from mdv.mdp.rule_cache import NamedRules, RuleCache
from mdv.mdp.schemas import SchemaInForce, build_schema
from mdv.mdp.selection_counts import recount_selections
from mdv.mdp.transaction import Transaction
from mdv.model import RDF, RDF_TYPE, RDFS, Document
from mdv.rdf.compare import Change, compare_schemas
from mdv.rdf.schema import PropertyChange, Schema, diff_schemas
from mdv.rdf.validate import ValueTyper, validate
from mdv.rdf.values import ValueKind
from mdv.rules.pattern import Pattern

MAX_NAMED_IN_ERROR = 20
"""How many of the broken documents or rules an error names."""


@dataclass(frozen=True, slots=True)
class SchemaOutcome:
    """The result of a schema change: the current version, its position, whether this call changed anything, and what.

    `rules_anew`: how many rules are decomposed differently. `matched`, `unmatched`: how many resources the rules of
    some LMR newly match, or match no longer. `sent`: how many resources are sent to some LMR. `left`: how many leave
    the closure of some LMR. `lmrs`: how many LMRs get an event, if only for the schema. `concerned`: the first LMRs
    that get events about resources.
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
    concerned: tuple[AffectedLmr, ...] = ()


def put_schema(
    connection: Connection,
    document: Document,
    provider: Provider,
    if_match: Collection[str] | None = None,
    by: str | None = None,
    is_decided: bool = False,
) -> SchemaOutcome:
    """Replace the schema, unless a stored document or a registered rule is invalid under the new one. `by`: the
    caller. `is_decided`: the lead of the backbone has decided it, so it is not refused."""
    tx = Transaction(provider, connection)
    tx.lock()
    version, old = tx.state.schema_version, tx.schema
    if if_match is not None and "*" not in if_match and str(version) not in if_match:
        raise PreconditionFailed(
            f"If-Match failed: the schema's version is {version}, not {', '.join(if_match)}. "
            "Read the schema again and repeat the change."
        )
    new = build_schema(version + 1, document.statements, dict(document.prefixes))
    declared = (_count_own(new.schema.classes), _count_own(new.schema.properties))
    if new.statements == old.statements and new.schema.prefixes == old.schema.prefixes:
        return SchemaOutcome(old.version, tx.state.position, False, *declared)
    broken_documents = find_broken_documents(connection, old.schema, new.schema)
    if broken_documents and not is_decided:
        raise breaking_documents(broken_documents)
    retyped = _retyped_properties(old.schema, new.schema)
    graph = RuleGraph(connection)
    reread = reread_rules(connection, graph, provider.rules, old, new)
    if reread.broken and not is_decided:
        raise breaking_rules(connection, reread.broken)
    changed_rules = reread.changed
    eca_rules = reread_eca_rules(connection, old, new)
    if eca_rules.broken and not is_decided:
        raise breaking_eca_rules(eca_rules.broken)
    before = tx.groups()
    touched = [group for group in before.groups if _touches(group.group.pattern, old.schema, new.schema, retyped)]
    suspensions = Suspensions(connection)
    notices = _suspend_broken(tx, graph, suspensions, reread)
    kept_touched = any(
        _touches(Pattern.from_json(pattern), old.schema, new.schema, retyped) for pattern in suspensions.kept_patterns()
    )
    matched = full_results(connection, before, touched)
    if retyped:
        update_typed_values(connection, _retyped(iter_stored_values(connection, retyped), new.typing))
    tx.store_schema(new, document, by)
    store_reread(tx, eca_rules, provider)
    tx.renew_classes()
    is_regrouped = bool(changed_rules or reread.broken)
    if before.groups or is_regrouped:
        last = tx.state.last_atomic_rule
        new_ends = _merge_changed(tx, graph, changed_rules, before.known, 0 if is_decided else MAX_EVALUATION_SECONDS)
        after = tx.groups()
        still = [after.by_id[group.group.group_id] for group in touched if group.group.group_id in after.by_id]
        db.store_difference(connection, matched, full_results(connection, after, still), new_ends, last)
    published = PublicationSummary()
    if tx.state.lmrs:
        if touched or is_regrouped or kept_touched:
            recount_selections(connection, tx.groups(), tx.state)
            # Matches of suspended rules under the old schema no longer count.
            suspensions.forget_kept_ends()
        tx.publish_schema(old, notices)
        published = summarize_publication(connection, MAX_NAMED_LMRS)
    if tx.state.replica is not None:
        _note_broken_documents(connection, broken_documents, new.schema)
    found = compare_schemas(old.schema, new.schema)
    return SchemaOutcome(
        new.version, tx.position, True, *declared, found.changes, found.left_out, found.counts, len(changed_rules),
        published.matched, published.unmatched, published.sent, published.left, published.lmrs, published.concerned,
    )  # fmt: skip


class BrokenRule(NamedTuple):
    """A rule that is invalid under a new schema, and why."""

    rule: StoredRule
    message: str
    hint: str | None = None


class RereadRules(NamedTuple):
    """What a new schema does to rules. `changed`: those that are decomposed differently, and those that are valid
    again. `broken`: those that are no longer valid. `resumed`: those that are valid again; True if the LMR was
    notified that the rule was suspended."""

    changed: list[tuple[StoredRule, PlannedRule]]
    broken: list[BrokenRule]
    resumed: dict[int, bool]


def reread_rules(
    connection: Connection, graph: RuleGraph, rules: RuleCache, old: SchemaInForce, new: SchemaInForce
) -> RereadRules:
    """Read all rules under a new schema."""
    found = RereadRules([], [], {})
    new_cache = RuleCache()
    suspensions = Suspensions(connection)
    suspended, broken_before = suspensions.ids(), suspensions.broken()
    for stored in graph.all_rules():
        library = NamedRules(graph, stored.owner, {})
        try:
            normal, plan, constants = new_cache.read(stored.text, new, library)
        except InvalidRule as error:
            if stored.id not in suspended:
                found.broken.append(BrokenRule(stored, error.flaws[0].message, error.flaws[0].hint))
            continue
        planned = PlannedRule(stored.id, stored.owner, plan, constants)
        if stored.id in broken_before:
            found.resumed[stored.id] = broken_before[stored.id]
            found.changed.append((stored, planned))
            continue
        if stored.id in suspended:
            continue
        before, was, _ = rules.read(stored.text, old, library)
        if before.searches != normal.searches:
            (name, *_) = sorted(before.searches ^ normal.searches)
            message = f"it searches the rule {name}, and the new schema has a class of that name"
            hint = "a class takes precedence over a rule of the same name; rename one of them"
            found.broken.append(BrokenRule(stored, message, hint))
        elif [part.digest for part in was] != [part.digest for part in plan]:
            found.changed.append((stored, planned))
    return found


def breaking_rules(connection: Connection, broken: Sequence[BrokenRule]) -> BreakingSchema:
    """Return the error of a schema under which rules are invalid."""
    named = broken[:MAX_NAMED_IN_ERROR]
    owners = read_lmr_names(connection, {one.rule.owner for one in named})
    flaws = [
        Flaw(f"{_rule_name(one.rule, owners)}: {one.message}", value=one.rule.text, hint=one.hint) for one in named
    ]
    return BreakingSchema(
        f"{len(broken):,} registered rule{'s' if len(broken) > 1 else ''} would become invalid: "
        f"{flaws[0].message}. Change or remove the rules first, or keep the classes and properties that they use.",
        flaws,
    )


def _suspend_broken(
    tx: Transaction, graph: RuleGraph, suspensions: Suspensions, reread: RereadRules
) -> dict[int, RuleNotices]:
    """Suspend the rules that are no longer valid, and end the suspension of those that are valid again. The caller
    recounts the matches. Return the notices for LMRs by their kind."""
    if not reread.broken and not reread.resumed:
        return {}
    reasons = {one.rule.id: f"It is invalid under the present schema: {one.message}." for one in reread.broken}
    detached = graph.detach(list(reasons))
    graph.drop(detached)
    suspensions.end(reread.resumed)
    suspensions.add_broken(reasons, tx.position)
    ended = RuleNotices.of((one.rule.owner, one.rule.id) for one in reread.broken)
    for reason in set(reasons.values()):
        same = [number for number in ended.rules if reasons[number] == reason]
        suspensions.note(ended._replace(rules=same), tx.position, EVENT_SUSPENDED, reason)
    resumed = RuleNotices.of(
        (stored.owner, stored.id) for stored, _ in reread.changed if reread.resumed.get(stored.id)
    )  # fmt: skip
    suspensions.note(resumed, tx.position, EVENT_RESUMED, "The rule is valid again under the present schema.")
    return {EVENT_SUSPENDED: ended, EVENT_RESUMED: resumed}


def _rule_name(rule: StoredRule, owners: Mapping[int, str]) -> str:
    of = f" of {owners[rule.owner]}" if rule.owner in owners else ""
    return f"rule {rule.name or rule.id}{of}"


def _touches(pattern: Pattern, old: Schema, new: Schema, retyped: Collection[str]) -> bool:
    """True if the new schema can change the matches of rules with this pattern."""
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


def _merge_changed(
    tx: Transaction,
    graph: RuleGraph,
    changed: list[tuple[StoredRule, PlannedRule]],
    known: KnownGroups,
    seconds: float,
) -> set[int]:
    """Replace rules in the rule graph by their decomposition under the new schema. Return the new end rules.
    `seconds`: the time limit of a statement; 0: none.

    The new version of the rule graph makes every process read the groups again.
    """
    detached = graph.detach([stored.id for stored, _ in changed])
    merged = merge_rules(graph, [planned for _, planned in changed], known, tx.state.last_atomic_rule)
    graph.drop(detached)
    tx.regroup(merged.last_atomic_rule)
    with db.reject_slow_statements(
        "Evaluating the rules under the new schema took too long. Nothing was changed. Simplify or remove the slowest "
        "rules (`mdv rule explain` estimates the cost of a rule), and try again."
    ):
        graph.forget_results(seconds)
        evaluate_ends(tx.connection, tx.groups(), merged.new_ends, tx.state, merged.first_atomic_rule)
    db.limit_time(tx.connection, 0)
    return {end.rule_id for end in merged.new_ends}


def _count_own(terms: Iterable[str]) -> int:
    return sum(not term.startswith((RDF, RDFS)) for term in terms)


def find_broken_documents(connection: Connection, old: Schema, new: Schema) -> dict[str, Flaw]:
    """Validate the stored statements with the changed properties against the new schema. Return the documents that are
    invalid, each with its first flaw."""
    properties = _properties_to_validate(old, new)
    if properties is not None and not properties:
        return {}
    broken: dict[str, Flaw] = {}
    for uri, values in groupby(iter_stored_values(connection, properties), key=itemgetter(0)):
        try:
            validate(Document(uri, tuple(value.statement for value in values)), new)
        except InvalidDocument as error:
            broken[uri] = Flaw(f"{uri}: {error.flaws[0].message}", subject=error.flaws[0].subject,
                               property=error.flaws[0].property, value=error.flaws[0].value)  # fmt: skip
    return broken


def breaking_documents(broken: Mapping[str, Flaw]) -> BreakingSchema:
    """Return the error of a schema under which stored documents are invalid."""
    named = list(broken.values())[:MAX_NAMED_IN_ERROR]
    more = f", and {len(broken) - MAX_NAMED_IN_ERROR:,} more" if len(broken) > MAX_NAMED_IN_ERROR else ""
    return BreakingSchema(
        f"{len(broken):,} stored document{'s' if len(broken) > 1 else ''} would no longer be valid{more}. "
        "Change or delete them first, or change the schema so that it allows their statements.",
        named,
    )


def _note_broken_documents(connection: Connection, broken: Collection[str], schema: Schema) -> None:
    """Note the documents with statements that the schema refuses, and forget those that it accepts again."""
    before = set(list_refused_documents(connection)) - set(broken)
    accept_documents(connection, [uri for uri in before if not _is_refused(connection, uri, schema)])
    refuse_documents(connection, broken)


def _is_refused(connection: Connection, uri: str, schema: Schema) -> bool:
    (row,) = find_replicated(connection, [uri]).values()
    statements = read_rows(connection, [row.stored.id])[row.stored.id]
    try:
        validate(Document(uri, tuple(statements)), schema)
    except InvalidDocument:
        return True
    return False


def _properties_to_validate(old: Schema, new: Schema) -> frozenset[str] | None:
    """Return the properties whose stored values may be invalid under the new schema; None means all properties."""
    difference = diff_schemas(old, new)
    if difference.closed:
        return None
    names = {name for name in difference.added_properties if _may_be_stored(name, old)}
    names |= {change.new.iri for change in difference.changed_properties if _asks_more(change, new)}
    names |= {p.iri for p in new.properties.values() if p.range in old.datatypes ^ new.datatypes}
    # A value of a property is also a value of its superproperties, so related properties are checked together.
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
    """True if a property may refuse values that it accepted before: by its range, or because it is now single-valued.

    A change from one class to another as range refuses nothing: a reference may point to a resource of another class.
    """
    before, after = change.old.range, change.new.range
    if after is not None and after != before and (before is None or new.is_datatype(before) or new.is_datatype(after)):
        return True
    gained = set(change.new.superproperties) - set(change.old.superproperties)
    return (change.old.set_valued and not change.new.set_valued) or any(
        not new.properties[name].set_valued for name in gained
    )


def _retyped_properties(old: Schema, new: Schema) -> frozenset[str]:
    """Return the properties whose stored values may be typed differently under the new schema."""
    names = old.properties.keys() | new.properties.keys()
    return frozenset(n for n in names if _may_be_stored(n, old) and _typed_ranges(n, old) != _typed_ranges(n, new))


def _typed_ranges(name: str, schema: Schema) -> list[str | None]:
    """Return the ranges, other than text, by which values of a property are compared: its own and inherited ones."""
    declared = schema.property_of(name)
    above = [schema.property_of(up) for up in declared.superproperties] if declared else []
    return [p.range for p in above if p is not None and p.kind is not ValueKind.TEXT]


def _retyped(values: Iterable[StoredValue], typing: ValueTyper) -> Iterator[tuple[str, object, object, object]]:
    for value in values:
        typed = typing.typed_values(value.statement.property, value.statement.object)
        if typed != value.typed:
            yield (value.row, *typed)
