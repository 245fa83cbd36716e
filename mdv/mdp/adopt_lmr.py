"""LMRs that change their home: adopt one here, and follow what other members have decided.

    definitions of all LMRs → those at home here are active: rules, closure, feed
                            → the others are dormant: a name and tokens

The later adoption wins: that with the highest term.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import structlog
from sqlalchemy import Connection

from mdv.db import lmrs as db
from mdv.db.feed import Feed
from mdv.db.lmrs import Lmr
from mdv.db.replica.lmrs import (
    find_lmr_number,
    forget_rules,
    insert_dormant,
    insert_lasting_ids,
    list_announced_rules,
    read_place,
    replace_tokens,
    set_place,
)
from mdv.db.state import lock_state
from mdv.errors import Conflict, InvalidRule, MdvError, NotFound, Unavailable
from mdv.failpoints import ACTIVATED_LMR, ANNOUNCED_HOME, hit_failpoint
from mdv.mdp.lmr_definitions import (
    LmrDefinition,
    RuleDefinition,
    announce_home,
    find_definition,
    list_definitions,
    list_rule_definitions,
)
from mdv.mdp.provider import Provider
from mdv.mdp.replica import Replica
from mdv.mdp.rules.operations import AddRules, ChangeRule, PrecomputeBusy, RemoveRules, carry_out
from mdv.mdp.rules.planning import RuleDraft
from mdv.mdp.rules.remove import remove_rules

log = structlog.get_logger()


class AdoptedLmr(NamedTuple):
    """An LMR that is at home here. `problems`: rules that are not active here, with the reasons."""

    term: int
    position: int
    token: str | None
    problems: tuple[str, ...] = ()


def adopt_lmr(connection: Connection, lmr: Lmr, provider: Provider, term: int) -> AdoptedLmr:
    """Make this MDP the home of an LMR. `term`: that of the LMR for this attempt. The rules become active, and the
    other members learn it with the same commit."""
    place = read_place(connection, lmr.id)
    definition = find_definition(connection, place.lasting_id)
    if definition is None:
        if place.home is None:  # the others do not know it yet, and it is at home here
            return AdoptedLmr(place.term, lock_state(connection).position, None)
        raise NotFound(f"The definition of the LMR {lmr.name} was removed.")
    if place.home is None and term <= definition.term:
        return AdoptedLmr(definition.term, lock_state(connection).position, None)
    problems: tuple[str, ...] = ()
    if place.home is not None:
        problems = _activate(connection, lmr, definition, provider)
    state = lock_state(connection)
    known = find_definition(connection, definition.lasting_id)
    if known is None or known.term != definition.term:
        raise Unavailable("The LMR was adopted elsewhere at the same time. Try again.")
    facts = Replica(provider).facts(connection)
    if facts is None:
        raise Conflict("This MDP has left its backbone.")
    adopted = known._replace(home=facts.name, term=max(term, known.term + 1))
    set_place(connection, lmr.id, adopted.term, None)
    token = announce_home(connection, adopted, provider)
    hit_failpoint(ANNOUNCED_HOME)
    return AdoptedLmr(adopted.term, state.position, token, problems)


def _activate(connection: Connection, lmr: Lmr, definition: LmrDefinition, provider: Provider) -> tuple[str, ...]:
    """Add all rules of a dormant LMR, and begin an empty feed. Return the problems. The lock is taken afterwards."""
    rules = list_rule_definitions(connection, definition.lasting_id)
    problems = _add_rules(connection, lmr, rules, provider)
    lock_state(connection)
    if rules != list_rule_definitions(connection, definition.lasting_id):
        raise Unavailable("The rules of the LMR are being changed. Try again.")
    feed = Feed(connection)
    feed.expire_events(lmr.id, feed.take_offsets(1))
    feed.drop_events(lmr.id)
    hit_failpoint(ACTIVATED_LMR)
    return tuple(problems)


def _add_rules(connection: Connection, lmr: Lmr, rules: Sequence[RuleDefinition], provider: Provider) -> list[str]:
    """Add rules in bulk. Those that have no meaning here are left out."""
    wanted, problems = list(rules), []
    while wanted:
        drafts = [RuleDraft(lmr.id, rule.name, rule.text, f"lmr {lmr.name}") for rule in wanted]
        try:
            added = carry_out(connection, AddRules(drafts), provider)
        except InvalidRule as error:
            place = int(error.extra.get("number", 1)) - 1
            problems.append(f"Subscription {wanted[place].lasting_id}: {error.detail}")
            del wanted[place]
            continue
        ids = {rule.id: one.lasting_id for rule, one in zip(added, wanted, strict=True)}
        insert_lasting_ids(connection, lmr.id, ids)
        break
    return problems


# Following what other members have decided


def follow_definitions(provider: Provider, name: str, lasting_ids: Collection[str] | None) -> set[str]:
    """Make LMRs as they are defined: those whose home is this member active, the others dormant. `name`: of this
    member. `lasting_ids`: None for all. Return those for which something remains to be done."""
    with provider.engine.connect() as connection:
        definitions = list_definitions(connection, lasting_ids)
    remaining = set()
    for lasting_id, definition in definitions.items():
        try:
            _follow(provider, lasting_id, definition, name)
        except (PrecomputeBusy, Unavailable):
            remaining.add(lasting_id)
        except MdvError as error:
            log.error("the definition of an LMR cannot be followed", lmr=lasting_id, reason=error.detail)
    return remaining


def _follow(provider: Provider, lasting_id: str, definition: LmrDefinition | None, name: str) -> None:
    with provider.engine.connect() as connection:
        number = find_lmr_number(connection, lasting_id)
        lmr = db.find_lmr(connection, str(number)) if number is not None else None
    if definition is None:
        if lmr is not None:
            _remove(provider, lmr, lasting_id)
    elif definition.home != name:
        _keep_dormant(provider, lmr, definition, name)
    elif lmr is None or lmr.home is not None:
        _return_home(provider, definition, name)
    else:
        _follow_rules(provider, lmr, definition)


def _remove(provider: Provider, lmr: Lmr, lasting_id: str) -> None:
    with provider.engine.begin() as connection:
        lock_state(connection)
        if find_definition(connection, lasting_id) is None:
            _drop_rules(connection, lmr, provider)
            db.delete_lmr(connection, lmr.id)


def _keep_dormant(provider: Provider, lmr: Lmr | None, definition: LmrDefinition, name: str) -> None:
    """Let an LMR that is at home elsewhere have its tokens here, and no rules."""
    if lmr is not None and (lmr.home, lmr.term) == (definition.home, definition.term):
        with provider.engine.begin() as connection:
            replace_tokens(connection, lmr.id, definition.tokens)
        return
    with provider.engine.begin() as connection:
        lock_state(connection)
        if find_definition(connection, definition.lasting_id) != definition:
            return  # a later change is followed next
        if lmr is None:
            number = insert_dormant(
                connection, definition.lasting_id, definition.name_at(name), definition.term, definition.home
            )
        else:
            number = lmr.id
            if lmr.home is None:
                log.info("an LMR has another home", lmr=lmr.name, home=definition.home, term=definition.term)
                _drop_rules(connection, lmr, provider)
            set_place(connection, number, definition.term, definition.home)
        replace_tokens(connection, number, definition.tokens)


def _drop_rules(connection: Connection, lmr: Lmr, provider: Provider) -> None:
    """Remove the rules of an LMR here, its closure and its feed. The lock is taken."""
    rules = db.list_rule_ids(connection, lmr.id)
    if rules:
        remove_rules(connection, rules, provider, without_notices=True)
    forget_rules(connection, lmr.id)
    db.delete_closure(connection, lmr.id)


def _return_home(provider: Provider, definition: LmrDefinition, name: str) -> None:
    """Activate an LMR that is at home here, although this database does not know it: it was restored from a backup."""
    with provider.engine.begin() as connection:
        lock_state(connection)
        number = find_lmr_number(connection, definition.lasting_id)
        if number is None:
            number = insert_dormant(
                connection, definition.lasting_id, definition.name_at(name), definition.term, definition.home
            )
        replace_tokens(connection, number, definition.tokens)
    with provider.engine.begin() as connection:
        lmr = db.find_lmr(connection, str(number))
        if lmr is None or lmr.home is None:
            return
        _activate(connection, lmr, definition, provider)
        if find_definition(connection, definition.lasting_id) != definition:
            raise Unavailable("The definition of the LMR is being changed.")
        set_place(connection, lmr.id, definition.term, None)


def _follow_rules(provider: Provider, lmr: Lmr, definition: LmrDefinition) -> None:
    """Add, change and remove rules of an LMR that is at home here as other members did, before they knew its home."""
    with provider.engine.execution_options(isolation_level="REPEATABLE READ").connect() as connection:
        rules = list_rule_definitions(connection, definition.lasting_id)
        present = {rule.lasting_id: rule for rule in list_announced_rules(connection, lmr.id)}
    wanted = {rule.lasting_id: rule for rule in rules}
    removed = [rule.id for number, rule in present.items() if number is not None and number not in wanted]
    if removed:
        with provider.engine.begin() as connection:
            carry_out(connection, RemoveRules(removed), provider)
            _check_unchanged(connection, lmr, definition, rules)
    for number, rule in present.items():
        if number in wanted and wanted[number].text != rule.text:
            with provider.engine.begin() as connection:
                carry_out(connection, ChangeRule(rule.id, wanted[number].text), provider)
                _check_unchanged(connection, lmr, definition, rules)
    missing = [rule for rule in rules if rule.lasting_id not in present]
    if missing:
        with provider.engine.begin() as connection:
            for problem in _add_rules(connection, lmr, missing, provider):
                log.error("a rule of an LMR has no meaning here", lmr=lmr.name, problem=problem)
            _check_unchanged(connection, lmr, definition, rules)


def _check_unchanged(
    connection: Connection, lmr: Lmr, definition: LmrDefinition, rules: Sequence[RuleDefinition]
) -> None:
    """Raise an error if an LMR has another home or other rules by now. The lock is taken."""
    place = read_place(connection, lmr.id)
    if (place.home, place.term) != (lmr.home, lmr.term) or rules != list_rule_definitions(
        connection, definition.lasting_id
    ):
        raise Unavailable(f"The definition of the LMR {lmr.name} has changed meanwhile.")
