"""The reads of a machine: the pattern of a triple, the next statement of a cursor, and its binding."""

from __future__ import annotations

from typing import Any

from mdv.model import Statement, Term
from mdv.real.compile_code import CodeNode, CodeTriple, Op
from mdv.real.machine_state import (
    C_READ,
    FIRST_CHUNK,
    K_AND,
    LATER_CHUNKS,
    Binding,
    Choice,
    MachineState,
    ProgramFault,
    annotated_literal,
    evaluates,
)
from mdv.real.store import (
    ReadPattern,
    StatementChange,
)
from mdv.real.vocabulary import (
    SCHEMA_CONTEXT,
)

MAX_REJECTED = 100
"""Statements that one step of a read may reject, for example since two variables differ."""


def read_pattern(machine: MachineState, triple: CodeTriple) -> ReadPattern | None:
    """Return the pattern of a triple under the current binding; None if nothing can match."""
    binding = machine.binding
    subject: Any = triple.subject
    if type(subject) is str:
        subject = binding.get(subject)
    property_: Any = triple.property
    if type(property_) is str:
        property_ = binding.get(property_)
    value: Any = triple.object
    if type(value) is str:
        value = binding.get(value)
    if subject is not None:
        if subject[0] != "uri":
            return None
        subject = subject[1]
    if property_ is not None:
        if property_[0] != "uri":
            return None
        property_ = property_[1]
    if triple.annotation is not None and value is not None:
        annotation = machine.value(triple.annotation)
        if annotation is None:
            # The language or datatype is not known: the object is compared when it is read.
            return ReadPattern(subject, property_)
        try:
            value = annotated_literal(value, annotation, triple.annotation)
        except ProgramFault:
            return None
    return ReadPattern(subject, property_, value, triple.is_typed)


@evaluates(Op.READ)
@evaluates(Op.TAKE)
def _read(machine: MachineState, node: CodeNode) -> None:
    triple = node.triple
    assert triple is not None
    pattern = read_pattern(machine, triple)
    if pattern is None:
        machine.fail()
        return
    contexts = machine.contexts
    if node.op == Op.TAKE:
        machine.check_may_change()
        contexts = contexts[:1]
    elif node.flag:
        contexts = contexts[:1]
    scope = machine.scope(contexts)
    machine.record(node, pattern, scope)
    if node.op == Op.READ and not pattern.is_typed and None not in pattern[:3]:
        if machine.is_present(Statement(*pattern[:3]), contexts):  # type: ignore[arg-type]
            machine.succeed(machine.binding)
        else:
            machine.fail()
        return
    present, skipped = machine.affected(pattern, contexts)
    machine.push(
        C_READ, node, pattern, scope, machine.view.position, None, present, 0, skipped, (), 0, scope == (), FIRST_CHUNK
    )
    next_row(machine, machine.stack[-1])


# Fields of a C_READ choice after the registers.
NODE, _PATTERN, _SCOPE, _POSITION, _AFTER, _PRESENT, _INDEX, _SKIPPED, _CHUNK, _AT, _DONE, _LIMIT = range(5, 17)


def _base_row(machine: MachineState, choice: Choice) -> Statement | None:
    """Return the next statement of the base without consuming it."""
    skipped = choice[_SKIPPED]
    while True:
        chunk, at = choice[_CHUNK], choice[_AT]
        while at < len(chunk):
            if chunk[at] not in skipped:
                choice[_AT] = at
                return chunk[at]  # type: ignore[no-any-return]
            choice[_AFTER] = chunk[at]
            at += 1
        choice[_AT] = at
        if choice[_DONE]:
            return None
        limit = choice[_LIMIT]
        chunk = machine.view.read(choice[_PATTERN], choice[_SCOPE], choice[_POSITION], choice[_AFTER], limit)
        choice[_CHUNK], choice[_AT], choice[_DONE], choice[_LIMIT] = chunk, 0, len(chunk) < limit, LATER_CHUNKS
        if len(chunk) > 1:
            _prefetch(machine, choice)


def next_row(machine: MachineState, choice: Choice) -> None:
    """Pass the next solution of a read on. Remove the choice with its last statement."""
    node: CodeNode = choice[NODE]
    triple = node.triple
    assert triple is not None
    for _ in range(MAX_REJECTED):
        row = _base_row(machine, choice)
        present, index = choice[_PRESENT], choice[_INDEX]
        if index < len(present) and (row is None or present[index] < row):
            row = present[index]
            choice[_INDEX] = index + 1
        elif row is not None:
            choice[_AT] += 1
            choice[_AFTER] = row
        else:
            machine.stack.pop()
            machine.fail()
            return
        is_last = choice[_DONE] and choice[_AT] >= len(choice[_CHUNK]) and choice[_INDEX] >= len(present)
        machine.resume(choice)
        machine.node = node
        binding = _row_binding(triple, choice[1], row)
        if binding is not None and (node.op != Op.TAKE or _take(machine, row)):
            if is_last:
                machine.stack.pop()
            machine.succeed(binding)
            return
        if is_last:
            machine.stack.pop()
            machine.fail()
            return
    machine.fail()  # the choice is still there: the next step goes on


def _row_binding(triple: CodeTriple, binding: Binding, row: Statement) -> Binding | None:
    """Return the binding under which a triple is equal to a statement, or None."""
    found: Binding | None = None
    subject, property_, value = row
    name = triple.subject
    if type(name) is str and name and name not in binding:
        found = {**binding, name: Term("uri", subject)}
    name = triple.property
    if type(name) is str and name:
        known = (found or binding).get(name)
        if known is None:
            found = {**(found or binding), name: Term("uri", property_)}
        elif known != ("uri", property_, None, None):
            return None
    item = triple.object
    if triple.annotation is not None:
        return _annotated_binding(triple, found or binding, value)
    if type(item) is str and item:
        known = (found or binding).get(item)
        if known is None:
            found = {**(found or binding), item: value}
        elif known != value:
            return None
    return binding if found is None else found


def _annotated_binding(triple: CodeTriple, binding: Binding, value: Term) -> Binding | None:
    """The same for an annotated object: its variable stands for the plain text."""
    if value.is_uri:
        return None
    annotation = Term.literal(value.lang) if value.lang is not None else Term.uri(value.datatype or _XSD_STRING)
    item, mark = triple.object, triple.annotation
    assert mark is not None
    if isinstance(mark, str):
        known = binding.get(mark)
        if known is None:
            binding = {**binding, mark: annotation} if mark else binding
        elif not _same_annotation(known, annotation):
            return None
    elif not _same_annotation(mark, annotation):
        return None
    plain = Term.literal(value.value)
    if isinstance(item, str):
        known = binding.get(item)
        if known is None:
            return {**binding, item: plain} if item else binding
        return binding if known in (plain, value) else None
    return binding if item.value == value.value else None


_XSD_STRING = "http://www.w3.org/2001/XMLSchema#string"


def _same_annotation(one: Term, other: Term) -> bool:
    if one.is_uri or other.is_uri:
        return one == other
    return one.value.lower() == other.value.lower()


def _take(machine: MachineState, row: Statement) -> bool:
    """Remove a statement from the top context. Return False if it is gone, or may not be removed anywhere."""
    top = machine.contexts[0]
    machine.record(None, ReadPattern(*row), machine.scope((top,)))
    if top == SCHEMA_CONTEXT:
        machine.warn(f"{SCHEMA_CONTEXT} cannot be changed by a program")
        return False
    documents = machine.documents_with(row)
    concerned = sorted(documents if top is None else documents & {top})
    for document in concerned:
        refusal = machine.view.refusal(StatementChange(document, row, False), machine.facts_of(document))
        if refusal is not None:
            machine.warn(refusal.reason)
            return False
    for document in concerned:
        machine.change(document, row, False)
    return bool(concerned)


def _prefetch(machine: MachineState, choice: Choice) -> None:
    """Tell the store which inner reads of an AND the statements of a chunk will cause. An addition reads whether its
    statement is present."""
    k, node = choice[4], choice[NODE]
    if k is None or k[0] != K_AND or node.op != Op.READ:
        return
    inner = k[1].parts[k[2]]
    if inner.op not in _READING:
        return
    contexts = choice[2] if inner.op == Op.READ else choice[2][:1]
    kept, patterns = machine.binding, []
    for row in choice[_CHUNK]:
        binding = _row_binding(node.triple, choice[1], row)
        if binding is not None:
            machine.binding = binding
            pattern = read_pattern(machine, inner.triple)
            if pattern is not None:
                patterns.append(pattern if inner.op in (Op.READ, Op.TAKE) else pattern._replace(is_typed=False))
    machine.binding = kept
    machine.view.prefetch(patterns, machine.scope(contexts))


_READING = frozenset((Op.READ, Op.TAKE, Op.ADD, Op.ENSURE))
