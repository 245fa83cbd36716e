"""How a machine goes on: frames take a solution, choices take up after a failure."""

from __future__ import annotations

from mdv.model import Term
from mdv.real.compile_code import CodeNode, Op
from mdv.real.events import WaitingFor
from mdv.real.machine_state import (
    C_LAST,
    C_NO,
    C_OR,
    C_READ,
    C_REPEAT,
    C_SCOPE,
    C_UNION,
    C_WAIT,
    K_COMMIT,
    K_CONTEXT,
    K_FIRST,
    K_LAST,
    K_NO,
    K_OR,
    K_REPEAT,
    K_RETURN,
    K_SANDBOX,
    K_WAIT,
    Binding,
    Choice,
    Frame,
    MachineState,
    continues,
    takes_up,
)
from mdv.real.read_rows import next_row, read_pattern
from mdv.real.store import (
    ScopedRead,
)

# --- frames ---


@continues(K_OR)
def _frame_or(machine: MachineState, k: Frame, binding: Binding) -> Binding | None:
    _, height, machine.k = k
    if height == len(machine.stack) - 1:
        machine.stack.pop()
    else:
        machine.stack[height][7] = True
    return binding


@continues(K_NO)
def _frame_no(machine: MachineState, k: Frame, binding: Binding) -> Binding | None:
    machine.cut(k[1])
    return None


@continues(K_FIRST)
def _frame_first(machine: MachineState, k: Frame, binding: Binding) -> Binding | None:
    _, height, machine.k = k
    machine.cut(height)
    return binding


@continues(K_LAST)
def _frame_last(machine: MachineState, k: Frame, binding: Binding) -> Binding | None:
    machine.stack[k[1]][5] = binding
    return None


@continues(K_REPEAT)
def _frame_repeat(machine: MachineState, k: Frame, binding: Binding) -> Binding | None:
    choice = machine.stack[k[1]]
    choice[7] += 1
    if choice[7] != choice[6]:
        return None
    machine.cut(k[1])
    machine.resume(choice)
    return machine.binding


@continues(K_WAIT)
def _frame_wait(machine: MachineState, k: Frame, binding: Binding) -> Binding | None:
    _, height, machine.k = k
    choice = machine.stack[height]
    if height == len(machine.stack) - 1:
        machine.stack.pop()
    else:
        choice[6] = True
    _forget_deadline(machine, choice[5])
    return binding


def _forget_deadline(machine: MachineState, node: CodeNode) -> None:
    if machine.segment is None:  # otherwise the segment may run again, with the same deadline
        machine.deadlines.pop((node.code.key, node.number), None)


@continues(K_COMMIT)
def _frame_commit(machine: MachineState, k: Frame, binding: Binding) -> Binding | None:
    _, height, outer, machine.k = k
    overlay = machine.overlays[machine.tx]
    overlay.merge_into(machine.overlays[outer])
    machine.tx = outer
    if height == len(machine.stack) - 1:
        machine.pop()
    if not machine.overlays[outer].outermost:
        machine.end_segment()
    return binding


@continues(K_SANDBOX)
def _frame_sandbox(machine: MachineState, k: Frame, binding: Binding) -> Binding | None:
    _, height, machine.tx, machine.k = k
    if height == len(machine.stack) - 1:
        machine.pop()
    return binding


@continues(K_CONTEXT)
def _frame_context(machine: MachineState, k: Frame, binding: Binding) -> Binding | None:
    _, machine.contexts, machine.k = k
    return binding


@continues(K_RETURN)
def _frame_return(machine: MachineState, k: Frame, binding: Binding) -> Binding | None:
    _, pairs, outer, _, machine.k = k
    for source, target in pairs:
        term = source if isinstance(source, Term) else binding.get(source)
        if isinstance(target, str) and target.startswith("="):
            known: Term | None = binding.get(target[1:])
            if known != term:
                return None
            continue
        known = target if isinstance(target, Term) else outer.get(target)
        if known is not None:
            if known != term:
                return None
        elif term is not None and target:
            outer = {**outer, target: term}
    return outer  # type: ignore[no-any-return]


# --- choices ---


@takes_up(C_OR)
def _choice_or(machine: MachineState, choice: Choice) -> None:
    node, number = choice[5], choice[6]
    if choice[7]:
        machine.pop()
        return
    machine.resume(choice)
    machine.node = node.parts[number]
    if number + 1 == len(node.parts):
        machine.pop()
    else:
        choice[6] = number + 1
        machine.k = (K_OR, len(machine.stack) - 1, machine.k)


@takes_up(C_UNION)
def _choice_union(machine: MachineState, choice: Choice) -> None:
    node, number = choice[5], choice[6]
    machine.resume(choice)
    machine.node = node.parts[number]
    if number + 1 == len(node.parts):
        machine.pop()
    else:
        choice[6] = number + 1


@takes_up(C_NO)
def _choice_no(machine: MachineState, choice: Choice) -> None:
    machine.pop()
    machine.resume(choice)
    machine.succeed(machine.binding)


@takes_up(C_LAST)
def _choice_last(machine: MachineState, choice: Choice) -> None:
    machine.pop()
    if choice[5] is not None:
        machine.resume(choice)
        machine.succeed(choice[5])


@takes_up(C_REPEAT)
def _choice_repeat(machine: MachineState, choice: Choice) -> None:
    machine.pop()
    name, wanted, count = choice[5:8]
    if wanted is not None or not count:
        return
    machine.resume(choice)
    if name:
        machine.succeed({**machine.binding, name: Term.literal(str(count), datatype=_XSD_INTEGER)})
    else:
        machine.succeed(machine.binding)


_XSD_INTEGER = "http://www.w3.org/2001/XMLSchema#integer"


@takes_up(C_SCOPE)
def _choice_scope(machine: MachineState, choice: Choice) -> None:
    machine.pop()


@takes_up(C_WAIT)
def _choice_wait(machine: MachineState, choice: Choice) -> None:
    node, is_found, position = choice[5:8]
    if is_found:
        machine.pop()
        return
    machine.resume(choice)
    machine.pop()
    part = node.parts[0]
    writes = part.op if part.op != Op.AND else part.parts[1].op
    awaited = machine.blocked if writes in (Op.ADD, Op.ENSURE, Op.NAME_LIST) else _awaited(machine, part)
    deadline = machine.deadlines.get((node.code.key, node.number))
    if awaited is None or (deadline is not None and machine.view.now() >= deadline):
        _forget_deadline(machine, node)
        machine.fail()
        return
    if machine.overlays[machine.tx].outermost:
        assert machine.segment is not None
        reads = machine.segment.reads
        machine.reads = {**reads, **machine.reads}  # what earlier slices read must still hold when the process sleeps
        machine.restart_segment()
        machine.event = WaitingFor(tuple(reads), deadline, is_retry=True)
    elif position != machine.view.position:
        machine.node = node  # a slice ended since the attempt: look again
    else:
        for read in awaited:
            machine.record(None, *read)  # the attempt may have been in an earlier slice at the same position
        machine.node = node
        machine.event = WaitingFor(awaited, deadline, takes=part.op == Op.TAKE and _is_exact(part))


def _awaited(machine: MachineState, part: CodeNode) -> tuple[ScopedRead, ...] | None:
    """Return the reads that a part waits for: of a list, the statement that refers to it."""
    read = part if part.op != Op.AND else part.parts[1]
    assert read.triple is not None
    pattern = read_pattern(machine, read.triple)
    if pattern is None:
        return None
    contexts = machine.contexts[:1] if read.op == Op.TAKE or read.flag else machine.contexts
    return (ScopedRead(pattern, machine.scope(contexts)),)


def _is_exact(node: CodeNode) -> bool:
    """True if every statement that matches the pattern of a triple matches the triple."""
    assert node.triple is not None
    triple = node.triple
    names = [item for item in (triple.property, triple.subject, triple.object) if isinstance(item, str) and item]
    return triple.annotation is None and len(names) == len(set(names))


@takes_up(C_READ)
def _choice_read(machine: MachineState, choice: Choice) -> None:
    next_row(machine, choice)
