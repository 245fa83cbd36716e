"""What a machine does at each node of a program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mdv.errors import InvalidDocument
from mdv.model import RDF_TYPE, ParsedDocument, Statement, Term
from mdv.rdf.blank import name_blank_nodes
from mdv.rdf.values import parse_number
from mdv.real.compile_code import CodeItem, CodeNode, CodeTriple, Op
from mdv.real.events import ServiceCalled, WaitingFor
from mdv.real.machine_state import (
    C_LAST,
    C_NO,
    C_OR,
    C_READ,
    C_REPEAT,
    C_SCOPE,
    C_UNION,
    C_WAIT,
    FIRST_CHUNK,
    K_AND,
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
    MAX_INFERRED,
    TRUE_NODE,
    Frame,
    MachineState,
    ProgramFault,
    Segment,
    evaluates,
    shown_item,
)
from mdv.real.overlay import SpawnedProcess, StopRequest
from mdv.real.primitives import PrimitiveError, run_primitive
from mdv.real.read_rows import next_row, read_pattern
from mdv.real.store import (
    ReadPattern,
)
from mdv.real.vocabulary import (
    ENGINE,
    PRIMITIVE,
    PRIMITIVES,
    RDF_GRAPH,
    SCHEMA_CONTEXT,
)


@evaluates(Op.AND)
def _and(machine: MachineState, node: CodeNode) -> None:
    machine.k = (K_AND, node, 1, machine.k)
    machine.node = node.parts[0]


@evaluates(Op.OR)
def _or(machine: MachineState, node: CodeNode) -> None:
    height = machine.push(C_OR, node, 1, False)
    machine.k = (K_OR, height, machine.k)
    machine.node = node.parts[0]


@evaluates(Op.UNION)
def _union(machine: MachineState, node: CodeNode) -> None:
    machine.push(C_UNION, node, 1)
    machine.node = node.parts[0]


@evaluates(Op.NO)
def _no(machine: MachineState, node: CodeNode) -> None:
    machine.k = (K_NO, machine.push(C_NO))
    machine.node = node.parts[0]


@evaluates(Op.FIRST)
def _first(machine: MachineState, node: CodeNode) -> None:
    machine.k = (K_FIRST, len(machine.stack), machine.k)
    machine.node = node.parts[0]


@evaluates(Op.LAST)
def _last(machine: MachineState, node: CodeNode) -> None:
    machine.k = (K_LAST, machine.push(C_LAST, None))
    machine.node = node.parts[0]


@evaluates(Op.REPEAT)
def _repeat(machine: MachineState, node: CodeNode) -> None:
    wanted: int | None = None
    name = ""
    if node.item is not None:
        term = machine.value(node.item)
        if term is None:
            assert isinstance(node.item, str)
            name = node.item
        else:
            number = None if term.is_uri else parse_number(term.value, term.datatype)
            if number is None or number < 0 or number != number.to_integral_value():
                raise ProgramFault(f'REPEAT needs a whole number from 0 on, not "{term.value[:60]}"')
            wanted = int(number)
            if wanted == 0:
                machine.succeed(machine.binding)
                return
    machine.k = (K_REPEAT, machine.push(C_REPEAT, name, wanted, 0))
    machine.node = node.parts[0]


@evaluates(Op.TRUE)
def _true(machine: MachineState, node: CodeNode) -> None:
    machine.succeed(machine.binding)


@evaluates(Op.FALSE)
def _false(machine: MachineState, node: CodeNode) -> None:
    machine.fail()


@evaluates(Op.TRANSACTION)
def _transaction(machine: MachineState, node: CodeNode) -> None:
    if machine.segment is None:
        machine.segment = Segment(0, machine.saved_state())
    outer, number = machine.tx, machine.new_overlay(is_sandbox=False)
    if not machine.overlays[outer].outermost:
        machine.segment.number = number
    height = machine.push(C_SCOPE, number)
    machine.k = (K_COMMIT, height, outer, machine.k)
    machine.tx = number
    machine.node = node.parts[0]


@evaluates(Op.SANDBOX)
def _sandbox(machine: MachineState, node: CodeNode) -> None:
    outer, number = machine.tx, machine.new_overlay(is_sandbox=True)
    height = machine.push(C_SCOPE, number)
    machine.k = (K_SANDBOX, height, outer, machine.k)
    machine.tx = number
    machine.node = node.parts[0]


@evaluates(Op.CONTEXT)
def _context(machine: MachineState, node: CodeNode) -> None:
    assert node.item is not None
    term, binding = machine.value(node.item), machine.binding
    if term is None:
        machine.check_may_change()
        graph = f"{machine.top}/{machine.fresh_token()}"
        if not machine.add(machine.top, Statement(graph, RDF_TYPE, Term.uri(RDF_GRAPH)), machine.contexts):
            machine.fail()
            return
        if node.item:
            binding = {**binding, node.item: Term.uri(graph)}  # type: ignore[dict-item]
    elif not term.is_uri:
        raise ProgramFault(f'a context is a document, not the literal "{term.value[:60]}"')
    else:
        graph = term.value
        if not _graph_exists(machine, graph):
            machine.fail()
            return
    machine.k = (K_CONTEXT, machine.contexts, machine.k)
    machine.contexts = (graph,) if node.flag else (graph, *machine.contexts)
    machine.binding = binding
    machine.node = node.parts[0]


def _graph_exists(machine: MachineState, graph: str) -> bool:
    """True if a document has a statement, or if this process made it: its fresh names contain its seed."""
    if graph == SCHEMA_CONTEXT or graph.rpartition("/")[2].startswith(f"{machine.settings.seed}-"):
        return True
    return next(machine.statements(ReadPattern(), (graph,)), None) is not None


def _in_wait(machine: MachineState) -> bool:
    """True if the current node is the part of a WAIT, or of the list that a WAIT is about."""
    k = machine.k
    while k is not None and k[0] == K_AND:
        k = k[3]
    return k is not None and k[0] == K_WAIT


@evaluates(Op.ADD)
@evaluates(Op.ENSURE)
def _add(machine: MachineState, node: CodeNode) -> None:
    assert node.triple is not None
    machine.blocked = None
    try:
        statement = machine.ground(node.triple)
    except ProgramFault:
        if not _in_wait(machine):
            raise
        machine.fail()
        return
    warned = len(machine.warnings)
    if machine.add(machine.top, statement, machine.contexts) or node.op == Op.ENSURE:
        machine.succeed(machine.binding)
        return
    if machine.blocked and len(machine.warnings) == warned and not _in_wait(machine):
        machine.warn("the statement is present already")
    machine.fail()


@evaluates(Op.INFER)
def _infer(machine: MachineState, node: CodeNode) -> None:
    triple = node.triple
    assert triple is not None
    pattern = read_pattern(machine, triple)
    engine = machine.value(node.inputs[0]) if node.inputs else Term.uri(ENGINE + "schema")
    if engine is None:
        raise ProgramFault("the inference engine is not bound")
    if pattern is None:
        machine.fail()
        return
    found: set[Statement] = set()
    try:
        for statement in machine.view.infer(engine.value, pattern, machine.facts):
            found.add(statement)
            if len(found) > MAX_INFERRED:
                raise ProgramFault(f"the inference has more than {MAX_INFERRED:,} solutions", "inferred")
    except LookupError:
        raise ProgramFault(f"there is no inference engine <{engine.value}>") from None
    machine.push(
        C_READ, node, pattern, (), machine.view.position, None, sorted(found), 0, frozenset(), (), 0, True, FIRST_CHUNK
    )
    next_row(machine, machine.stack[-1])


@evaluates(Op.NAME_LIST)
def _name_list(machine: MachineState, node: CodeNode) -> None:
    """Bind the hidden variables of a list to the names that a registration of its document would give."""
    binding = dict(machine.binding)
    for name in node.inputs:
        binding[name] = Term("blank", f"_:{name[1:]}")  # type: ignore[index]
    try:
        machine.binding, kept = binding, machine.binding
        statements = [_blank_statement(machine, cell) for cell in node.cells]
    except ProgramFault:
        machine.binding = kept
        if not _in_wait(machine):
            raise
        machine.blocked = None
        machine.fail()
        return
    try:
        named = name_blank_nodes(ParsedDocument(machine.top, tuple(statements)))
    except InvalidDocument as error:
        raise ProgramFault(f"the list cannot be named: {error.detail}") from None
    names = _matching_names(statements, named.statements, [binding[n].value for n in node.inputs])  # type: ignore[index]
    machine.succeed({**kept, **{n: Term.uri(names[binding[n].value]) for n in node.inputs}})  # type: ignore[index,misc]


def _blank_statement(machine: MachineState, triple: CodeTriple) -> Statement:
    items = [machine.value(item) for item in (triple.subject, triple.property, triple.object)]
    for item, term in zip((triple.subject, triple.property, triple.object), items, strict=True):
        if term is None:
            raise ProgramFault(f"{shown_item(item)} is not bound, so there is no statement to add")
    subject, name, value = items
    assert subject is not None and name is not None and value is not None
    if subject.type == "literal" or not name.is_uri:
        raise ProgramFault("a literal cannot be a subject or a property")
    return Statement(subject.value, name.value, value)


def _matching_names(written: Sequence[Statement], named: Iterable[Statement], ids: Sequence[str]) -> dict[str, str]:
    """Return the permanent name of each blank node: those of a list follow its links, from its first cell on."""
    by_link: dict[tuple[str, str], list[Term]] = {}
    for one in named:
        by_link.setdefault((one.subject, one.property), []).append(one.object)
    names: dict[str, str] = {}
    for one in written:  # a cell is mentioned before its own statements
        if one.object.type == "blank":
            subject = names.get(one.subject, one.subject)
            found = [term for term in by_link[subject, one.property] if "#_:" in term.value]
            names[one.object.value] = found[0].value
    assert set(ids) <= names.keys()
    return names


@evaluates(Op.FORGET)
def _forget(machine: MachineState, node: CodeNode) -> None:
    machine.succeed({name: term for name, term in machine.binding.items() if name not in node.inputs})


@evaluates(Op.FRESH)
def _fresh(machine: MachineState, node: CodeNode) -> None:
    name = node.item
    assert isinstance(name, str)
    if name in machine.binding:
        raise ProgramFault(f"?{name} is bound already, so it cannot be a fresh IRI")
    iri = f"{machine.top}#{machine.fresh_token()}"
    machine.succeed({**machine.binding, name: Term.uri(iri)})


def _action_iri(machine: MachineState, node: CodeNode) -> str:
    assert node.item is not None
    term = machine.value(node.item)
    if term is None:
        raise ProgramFault(f"{shown_item(node.item)} is not bound, so there is no action to run")
    if not term.is_uri:
        raise ProgramFault(f'an action is an IRI, not the literal "{term.value[:60]}"')
    return term.value


@evaluates(Op.CALL)
def _call(machine: MachineState, node: CodeNode) -> None:
    iri = _action_iri(machine, node)
    if iri.startswith(PRIMITIVE):
        _call_primitive(machine, node, iri.removeprefix(PRIMITIVE))
        return
    action = machine.load_action(iri)
    inputs, outputs = action.signature
    terms = machine.inputs(node, iri, inputs)
    if node.flag:
        outputs = ()  # those of a process are not taken
    elif len(node.outputs) != len(outputs):
        raise ProgramFault(f"<{iri}> has {len(outputs)} outputs, but {len(node.outputs)} are given")
    code = machine.body(action, iri)
    machine.k = _return_frame(machine, tuple(zip(outputs, node.outputs, strict=True)))
    machine.binding = dict(zip(inputs, terms, strict=True))
    machine.node = code.root


def _return_frame(machine: MachineState, outputs: tuple[tuple[str, CodeItem], ...]) -> Frame:
    """Return the frame that gives the outputs to the caller. A tail call takes over the frame of its caller.

    A pair of a frame is a source (the name of a variable of the body, or a term) and a target (an item of the caller).
    """
    k = machine.k
    if k is None or k[0] != K_RETURN:
        depth = machine.depth() + 1
        if depth > machine.settings.limits.depth:
            raise ProgramFault(
                f"calls are nested more than {machine.settings.limits.depth:,} deep, which is the limit", "depth"
            )
        return (K_RETURN, outputs, machine.binding, depth, k)
    binding = machine.binding
    pairs: dict[tuple[CodeItem, CodeItem], None] = {}
    by_target: dict[str, str] = {}
    for source, target in outputs:
        known = machine.value(target)
        if known is not None:
            pairs[source, known] = None  # the output must be equal to a bound or constant one
        elif target in by_target:
            pairs[source, f"={by_target[target]}"] = None
        elif target:
            by_target[target] = source  # type: ignore[index]
    for source_of_caller, target in k[1]:
        found: CodeItem | None = source_of_caller if isinstance(source_of_caller, Term) else None
        if found is None:
            found = binding.get(source_of_caller) or by_target.get(source_of_caller)
        if isinstance(target, str) and target.startswith("="):
            other = binding.get(target[1:]) or by_target.get(target[1:]) or ""
            target = f"={other}" if isinstance(other, str) else other
        if found is not None:
            if isinstance(found, str) or found != target:
                pairs[found, target] = None
        elif isinstance(target, Term) or target in k[2]:
            pairs["", target] = None  # an output without a value is not equal to any
    return (K_RETURN, tuple(pairs), k[2], k[3], k[4])


def _call_primitive(machine: MachineState, node: CodeNode, name: str) -> None:
    if name not in PRIMITIVES:
        raise ProgramFault(f"there is no primitive {name} (there are {', '.join(PRIMITIVES)})")
    inputs, outputs = PRIMITIVES[name]
    terms = machine.inputs(node, PRIMITIVE + name, ("",) * inputs)
    if len(node.outputs) != outputs:
        raise ProgramFault(f"primitive:{name} has {outputs} outputs, but {len(node.outputs)} are given")
    overlay = machine.overlays[machine.tx]
    if name == "service":
        if overlay.number:
            raise ProgramFault("a service cannot be called inside [ ] or { }")
        machine.check_may_change()
        machine.node, machine.event = TRUE_NODE, ServiceCalled(terms[0].value, node.span, node.code.text)
        return
    if name == "sleep":
        if overlay.outermost:
            raise ProgramFault("a program cannot sleep inside [ ], which would hold its changes")
        seconds = parse_number(terms[0].value, terms[0].datatype)
        if terms[0].is_uri or seconds is None or not 0 <= seconds <= 10**9:
            raise ProgramFault(f'primitive:sleep needs a number of seconds, not "{terms[0].value[:60]}"')
        deadline = machine.view.now() + float(seconds)
        machine.node, machine.event = TRUE_NODE, WaitingFor((), deadline)
        return
    if name == "log":
        machine.log.append(terms[0])
        machine.succeed(machine.binding)
        return
    try:
        found = run_primitive(name, terms, machine.settings.process, machine.view.now)
    except PrimitiveError as error:
        raise ProgramFault(f"primitive:{name}: {error}") from None
    if found is not None and name == "concat":
        machine.steps += len(found.value) // 10  # so that the limit of steps also bounds the size of texts
    if found is None:
        machine.fail()
    elif not outputs:
        machine.succeed(machine.binding)
    else:
        _succeed_with(machine, node.outputs[0], found)


def _succeed_with(machine: MachineState, item: CodeItem, term: Term) -> None:
    """Pass on a solution that binds an output, if it is not bound to another term."""
    known = machine.value(item)
    if known is None:
        machine.succeed({**machine.binding, item: term} if item else machine.binding)  # type: ignore[dict-item]
    elif known == term:
        machine.succeed(machine.binding)
    else:
        machine.fail()


@evaluates(Op.EXPAND)
def _expand(machine: MachineState, node: CodeNode) -> None:
    iri = _action_iri(machine, node)
    action = machine.load_action(iri, is_template=True)
    names = action.signature.inputs
    if len(node.inputs) != len(names):
        raise ProgramFault(f"<{iri}> has {len(names)} inputs, but {len(node.inputs)} are given")
    machine.node = machine.body(action, iri, tuple(zip(names, node.inputs, strict=True))).root


@evaluates(Op.SPAWN)
def _spawn(machine: MachineState, node: CodeNode) -> None:
    machine.check_may_change()
    iri = _action_iri(machine, node)
    action = machine.load_action(iri)
    terms = machine.inputs(node, iri, action.signature.inputs)
    process = f"urn:mdv:real:process/{machine.fresh_token()}"
    machine.effects += 1
    if machine.effects > machine.settings.limits.effects:
        raise ProgramFault(
            f"the program has {machine.settings.limits.effects:,} effects, which is the limit", "effects"
        )
    if machine.spawns_left is None:
        machine.spawns_left = machine.count_spawnable()
    if machine.spawns_left is not None:
        spawned = sum(len(one.spawned) for one in machine.overlays.values() if not one.in_sandbox)
        if spawned >= machine.spawns_left:
            raise ProgramFault(
                "the processes that descend from one, or those of this caller, are as many as are allowed", "processes"
            )
    machine.overlays[machine.tx].spawned.append(SpawnedProcess(process, iri, terms))
    if node.outputs:
        _succeed_with(machine, node.outputs[0], Term.uri(process))
    else:
        machine.succeed(machine.binding)


@evaluates(Op.STOP)
def _stop(machine: MachineState, node: CodeNode) -> None:
    machine.check_may_change()
    assert node.item is not None
    term = machine.value(node.item)
    message = machine.value(node.inputs[0]) if node.inputs else None
    if term is None or (node.inputs and message is None):
        raise ProgramFault(
            f"{shown_item(node.item if term is None else node.inputs[0])} is not bound, so nothing can be stopped"
        )
    chain = machine.overlays[machine.tx].chain
    is_stopped = any(term.value == one.process for number in chain for one in machine.overlays[number].stopped)
    is_active = term.value == machine.settings.process or machine.view.is_active(term.value)
    if not term.is_uri or is_stopped or not is_active:
        machine.fail()
        return
    refusal = machine.view.stop_refusal(term.value)
    if refusal is not None:
        machine.warn(refusal)
        machine.fail()
        return
    machine.overlays[machine.tx].stopped.append(StopRequest(term.value, message))
    machine.succeed(machine.binding)


@evaluates(Op.WAIT)
def _wait(machine: MachineState, node: CodeNode) -> None:
    place = (node.code.key, node.number)
    if node.at_most is not None and place not in machine.deadlines:
        machine.deadlines[place] = machine.view.now() + float(node.at_most)
    height = machine.push(C_WAIT, node, False, machine.view.position)
    machine.k = (K_WAIT, height, machine.k)
    machine.node = node.parts[0]
