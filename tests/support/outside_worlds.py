"""Random worlds for the checker over HTTP: documents, updates and rules as texts of RDFTL.

3 classes and a subclass, 4 resources, 2 collections. The same rule is written in different ways: names with and without
prefix, LET, several forms of operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from tests.support.outside_execsched import (
    RDF,
    TYPE,
    Arc,
    Change,
    Constant,
    Node,
    Path,
    Rule,
    Schema,
    Step,
    Test,
    Text,
    Triple,
    Value,
    Verb,
    is_valid,
)

W = "http://world.example/terms#"
BASE = "http://world.example/"
SCHEMA_TEXT = f"""
@prefix : <{W}> .
@prefix rdf: <{RDF}> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
@prefix mdv: <urn:mdv:schema#> .
:Thing a rdfs:Class . :Tool a rdfs:Class ; rdfs:subClassOf :Thing . :Person a rdfs:Class . :Place a rdfs:Class .
:near a rdf:Property ; mdv:setValued true . :beside rdfs:subPropertyOf :near .
:owner a rdf:Property ; rdfs:range :Person .
:size a rdf:Property ; rdfs:range xsd:decimal . :grade a rdf:Property ; rdfs:range xsd:integer ; mdv:setValued true .
:tag a rdf:Property ; rdfs:range xsd:string ; mdv:setValued true .
:title a rdf:Property ; rdfs:range rdfs:Literal ; mdv:setValued true .
"""
SCHEMA = Schema(
    {
        W + "Tool": (W + "Thing",), W + "beside": (W + "near",),
        **{RDF + name: ("http://www.w3.org/2000/01/rdf-schema#Container",) for name in ("Bag", "Seq", "Alt")},
    },
    frozenset({W + "size", W + "grade"}),
    frozenset({W + "owner", W + "size"}),
    frozenset({W + "owner"}),
)  # fmt: skip
CLASSES = [W + name for name in ("Thing", "Tool", "Person", "Place")]
RESOURCES = [BASE + f"r{n}" for n in range(4)]
BAG, SEQ = BASE + "bag", BASE + "seq"
NODES = [*RESOURCES, BAG, SEQ]
DOCUMENTS = [BASE + "doc/1", BASE + "doc/2", BASE + "doc/3"]
REFERENCES = [W + "near", W + "beside", W + "owner"]
LITERALS = {
    W + "size": [Text("1"), Text("2"), Text("2.0"), Text("3")],
    W + "grade": [Text("1"), Text("2"), Text("3")],
    W + "tag": [Text("a"), Text("b"), Text("c")],
    W + "title": [Text(text, lang) for text in "xy" for lang in ("", "en", "de")],
}
PROPERTIES = [*REFERENCES, *LITERALS]


@dataclass
class Author:
    """Makes random parts of worlds. `delta`: what `$delta` may be written as in the part that is made."""

    random: Random
    delta: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    """The fields of `$delta` that are literals."""
    event_arc: str = ""
    """The property of the event."""

    # Documents

    def contents(self, most: int = 12) -> frozenset[Arc]:
        """Return statements of a document: valid and not empty."""
        found = {self.arc() for _ in range(self.random.randint(1, most))}
        while not is_valid(found, SCHEMA):
            found.discard(self.random.choice(sorted(found, key=str)))
        return frozenset(found)

    def arc(self) -> Arc:
        kind = self.random.randrange(10)
        if kind < 2:
            return self.random.choice(RESOURCES), TYPE, self.random.choice(CLASSES)
        if kind == 2:
            return self.random.choice([(BAG, TYPE, RDF + "Bag"), (SEQ, TYPE, RDF + "Seq")])
        if kind == 3:
            return self.random.choice([BAG, SEQ]), f"{RDF}_{self.random.randint(1, 3)}", self.random.choice(NODES)
        property_ = self.random.choice(PROPERTIES)
        return self.random.choice(RESOURCES), property_, self.value(property_)

    def value(self, property_: str) -> Value:
        return self.random.choice(LITERALS.get(property_, NODES))

    # Paths and conditions

    def path(self, most: int = 2, here: bool = False, fewest: int = 0) -> Path:
        heads = [*self.delta * 4, *NODES, "all"] if not here else ["here"]
        steps = tuple(self.step() for _ in range(self.random.randint(fewest, most)))
        tests = (self.test(here=True),) if not here and self.random.random() < 0.12 else ()
        return Path(self.random.choice(heads), tests, steps)

    def step(self) -> Step:
        tests = (self.test(here=True),) if self.random.random() < 0.1 else ()
        if self.random.random() < 0.2:
            return Step("element", self.random.choice([None, None, 1, 2]), tests)
        axis = self.random.choice(("target", "target", "source"))
        return Step("source" if axis == "source" else "target", self.random.choice([None, TYPE, *REFERENCES]), tests)

    def test(self, here: bool = False, depth: int = 1) -> Test:
        """Return a condition; with `here`, a qualifier."""
        kind = self.random.randrange(12)
        if not here and kind < 5:
            return Test("true")
        if depth and kind in (5, 6, 7):
            kinds = {5: "not", 6: "and", 7: "or"}
            parts = tuple(self.test(here, depth - 1) for _ in range(1 if kind == 5 else 2))
            return Test(kinds[kind], parts)  # type: ignore[arg-type]
        if self.values and not here and self.random.random() < 0.5:
            return self.test_of_values()
        start = self.path(1, here)
        if kind == 8:
            last = (self.step(),) if here and not start.steps else ()
            return Test("exists", left=replace(start, steps=(*start.steps, *last)))
        name = self.random.choice([*PROPERTIES, TYPE])
        left = replace(start, steps=(*start.steps, Step("target", name)))
        operator = self.random.choice(["=", "=", "≠", "<", ">="] if name in SCHEMA.numbers else ["=", "=", "≠"])
        return Test("compare", left=left, operator=operator, right=self.right(name))

    def test_of_values(self) -> Test:
        """Return a comparison of a target of `$delta`."""
        operator = self.random.choice(["=", "≠", "<", ">="] if self.event_arc in SCHEMA.numbers else ["=", "≠"])
        right = Path(self.values[-1]) if self.random.random() < 0.3 else self.right(self.event_arc)
        return Test("compare", left=Path(self.values[0]), operator=operator, right=right)

    def right(self, name: str) -> Path | Constant:
        if name in LITERALS:
            text = self.random.choice(LITERALS[name]).text
            return Constant(text, name in SCHEMA.numbers)
        return Path(self.random.choice(CLASSES if name == TYPE else NODES))

    # Events and actions

    def event(self) -> Change:
        verb = self.random.choice(("INSERT", "DELETE"))
        everything = Path("all")
        if self.random.random() < 0.4:
            path = everything if self.random.random() < 0.9 else self.path(1)
            return Change(verb, path, self.random.choice([None, *CLASSES]))  # type: ignore[arg-type]
        triple_verb: Verb = self.random.choice(("INSERT", "DELETE", "UPDATE", "UPDATE"))  # type: ignore[assignment]
        arc = self.random.choice([None, None, None, TYPE, *PROPERTIES, W + "near"])
        source = self.matched_node(None) if self.random.random() < 0.12 else Node()
        target = self.matched_node(arc) if self.random.random() < 0.12 else Node()
        new = None
        if triple_verb == "UPDATE":
            new = self.matched_node(arc) if self.random.random() < 0.12 else Node()
        return Change(triple_verb, triples=(Triple(source, arc, target, new),))

    def matched_node(self, arc: str | None) -> Node:
        """Return a component of a triple that is matched."""
        class_ = self.random.choice(CLASSES) if self.random.random() < 0.2 else None
        if arc in LITERALS and self.random.random() < 0.8:
            return Node(Constant(self.random.choice(LITERALS[arc]).text, arc in SCHEMA.numbers), None)
        return Node(self.path(1), class_)

    def action(self) -> Change:
        verb: Verb = self.random.choice(("INSERT", "INSERT", "DELETE", "UPDATE", "UPDATE"))  # type: ignore[assignment]
        if verb != "UPDATE" and self.random.random() < 0.25:
            path = Path(self.random.choice([*self.delta * 2, *NODES]))
            class_ = self.random.choice(CLASSES) if verb == "INSERT" or self.random.random() < 0.3 else None
            return Change(verb, path, class_)
        number = 1 if self.random.random() < 0.7 else 2
        return Change(verb, triples=tuple(self.triple(verb) for _ in range(number)))

    def triple(self, verb: Verb) -> Triple:
        source = Node(Path(self.random.choice([*self.delta * 2, *RESOURCES])))
        if self.random.random() < 0.15:
            source = self.random.choice([Node(), Node(self.path(1)), Node(None, self.random.choice(CLASSES))])
        arc = self.random.choice([TYPE, *PROPERTIES, *PROPERTIES])
        match verb:
            case "DELETE":
                found = None if self.random.random() < 0.2 else arc
                return Triple(source, found, Node() if self.random.random() < 0.6 else self.matched_node(found))
            case "UPDATE":
                old = Node() if self.random.random() < 0.8 else self.matched_node(arc)
                return Triple(source, arc, old, self.new_node(arc))
            case _:
                if self.random.random() < 0.2:
                    collection = self.random.choice([BAG, SEQ, SEQ, RESOURCES[0]])
                    return Triple(Node(Path(collection)), "seq++", self.new_node(W + "near"))
                return Triple(source, arc, self.new_node(arc))

    def new_node(self, arc: str) -> Node:
        """Return what is inserted."""
        if arc in LITERALS:
            value = self.random.choice(LITERALS[arc])
            return Node(Constant(value.text, arc in SCHEMA.numbers, value.lang))
        if arc == TYPE:
            return Node(Path(self.random.choice(CLASSES)))
        class_ = self.random.choice(CLASSES) if self.random.random() < 0.1 else None
        if self.random.random() < 0.2:
            return Node(self.path(1), class_)
        return Node(Path(self.random.choice([*self.delta * 2, *NODES])), class_)

    def update(self) -> tuple[Change, ...]:
        self.delta = self.values = ()
        return tuple(self.action() for _ in range(self.random.randint(1, 3)))

    def rule(self, name: str, others: Sequence[str] = ()) -> Rule:
        self.delta = self.values = ()
        event = self.event()
        fields = ["delta"]
        if event.triples:
            arc = event.triples[0].arc
            fields += ["delta", "delta.source"]
            targets = ["delta.old_target", "delta.new_target"] if event.verb == "UPDATE" else ["delta.target"]
            if arc in REFERENCES:
                fields += targets
            elif arc in LITERALS:
                self.values, self.event_arc = tuple(targets), arc or ""
        self.delta = tuple(fields)
        condition = self.test()
        actions = tuple(self.action() for _ in range(self.random.choice((1, 1, 2))))
        if self.random.random() < 0.15:
            failing = Triple(Node(Path(RESOURCES[1])), "seq++", Node(Path(BAG)))
            actions = (*actions, Change("INSERT", triples=(failing,)))
        some = [self.random.choice(others)] if others and self.random.random() < 0.3 else []
        coupling = self.random.choice(("Immediate", "Immediate", "Immediate", "Deferred", "Detached"))
        aborts = ("ParentChild", "Independent", "Mutual", "ChildParent")
        # The failure of a detached copy does not compensate its parent.
        abort = self.random.choice(aborts[:2] if coupling == "Detached" else aborts)
        verb = self.random.choice(("precedes", "follows"))
        made = Rule(event, condition, actions, name, coupling, abort, **{verb: tuple(some)})  # type: ignore[arg-type]
        return replace(made, set_=self.random.choice(("main", "main", "second")))


# Texts


@dataclass
class Writer:
    """Writes rules and updates, with a random choice of spelling."""

    random: Random

    def rule(self, rule: Rule) -> str:
        headers = [f"RULE {rule.name}"]
        if rule.coupling != "Immediate" or self.random.random() < 0.2:
            headers.append(f"COUPLING {rule.coupling}")
        headers.append(f"ABORT {rule.abort}")
        headers += [f"PRECEDES {', '.join(rule.precedes)}"] if rule.precedes else []
        headers += [f"FOLLOWS {', '.join(rule.follows)}"] if rule.follows else []
        lets = self.random.random() < 0.15 and not rule.event.triples and rule.event.path == Path("all")
        event = self.change(rule.event) if not lets else self.change(rule.event).replace("resource()", "$every", 1)
        binding = "LET $every := resource() IN " if lets else ""
        lines = [
            *headers,
            f"ON {binding}{event}",
            f"IF {self.test(rule.condition)}",
            f"DO {self.actions(rule.actions)}",
        ]
        return "\n".join(lines)

    def actions(self, actions: Sequence[Change]) -> str:
        return self.random.choice(("; ", ";\n   ")).join(map(self.change, actions)) + self.random.choice(("", ";"))

    def change(self, change: Change) -> str:
        verb = change.verb if self.random.random() < 0.8 else change.verb.lower()
        if change.path is not None:
            return f"{verb} {self.path(change.path)}{self.instance(change.class_)}"
        return f"{verb} {', '.join(map(self.triple, change.triples))}"

    def instance(self, class_: str | None) -> str:
        return f" AS INSTANCE OF {self.name(class_)}" if class_ is not None else ""

    def triple(self, triple: Triple) -> str:
        arc = triple.arc if triple.arc == "seq++" else self.name(triple.arc)
        ends = self.node(triple.target)
        if triple.new is not None:
            ends += self.random.choice((" -> ", "->", " → ")) + self.node(triple.new)
        return f"({self.node(triple.source)}, {arc}, {ends})"

    def node(self, node: Node) -> str:
        if isinstance(node.value, Constant):
            value = self.constant(node.value)
        else:
            value = "_" if node.value is None else self.path(node.value)
        return value + self.instance(node.class_)

    def name(self, name: str | None) -> str:
        if name is None:
            return "_"
        local = name.removeprefix(W)
        if local != name:
            return self.random.choice((local, ":" + local, f"<{name}>"))
        return self.random.choice(("rdf:type", f"<{name}>"))

    def constant(self, constant: Constant) -> str:
        if constant.is_number:
            return self.random.choice((constant.text, f"'{constant.text}'"))
        tag = f"@{constant.lang}" if constant.lang else ""
        return self.random.choice((f"'{constant.text}'", f'"{constant.text}"')) + tag

    def path(self, path: Path) -> str:
        steps = "/".join(self.step(step) for step in path.steps)
        if path.head == "here":
            return steps
        if path.head.startswith("delta"):
            head = "$" + path.head
        elif path.head == "all":
            head = self.random.choice(("resource()", "resource('')"))
        else:
            head = f"resource({self.random.choice((path.head, f'<{path.head}>', repr(path.head)))})"
        return "".join([head, *(f"[{self.test(one)}]" for one in path.tests)]) + (f"/{steps}" if steps else "")

    def step(self, step: Step) -> str:
        if step.axis == "element":
            inner = str(step.of) if step.of is not None else ""
        else:
            inner = self.name(step.of if isinstance(step.of, str) else None)
        return f"{step.axis}({inner})" + "".join(f"[{self.test(one)}]" for one in step.tests)

    def test(self, test: Test) -> str:
        match test.kind:
            case "true":
                return self.random.choice(("TRUE", "True"))
            case "not":
                return f"not ({self.test(test.parts[0])})"
            case "and" | "or":
                return "(" + f" {test.kind} ".join(self.test(part) for part in test.parts) + ")"
        assert test.left is not None
        left = self.path(test.left)
        if test.kind == "exists":
            return left
        right = self.constant(test.right) if isinstance(test.right, Constant) else self.path(test.right or Path(""))
        operator = self.random.choice(("≠", "!=", "<>")) if test.operator == "≠" else test.operator
        return f"{left} {operator} {right}"


def n_triples(arcs: Sequence[Arc] | frozenset[Arc]) -> str:
    """Write statements as N-Triples."""
    lines = []
    for subject, property_, value in sorted(arcs, key=str):
        end = f'"{value.text}"' + (f"@{value.lang}" if value.lang else "") if isinstance(value, Text) else f"<{value}>"
        lines.append(f"<{subject}> <{property_}> {end} .\n")
    return "".join(lines)
