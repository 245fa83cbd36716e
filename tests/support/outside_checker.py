"""An outside checker of event-condition-action rules: random worlds over HTTP, compared with its own naive execSched.

It knows an MDP by its URL and token alone. A difference is an `AssertionError` that names the seed and the step.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import httpx2

from tests.support.eventually import eventually
from tests.support.outside_execsched import (
    Arc,
    Copy,
    Delta,
    DoesNotEnd,
    Failed,
    Limits,
    Rule,
    RuleFailed,
    State,
    Text,
    Transaction,
    Value,
    is_valid,
)
from tests.support.outside_worlds import DOCUMENTS, SCHEMA, SCHEMA_TEXT, Author, W, Writer, n_triples

MAX_RULES = 9
MAX_CHAIN = 4
"""Detached copies that follow each other, in steps that are tried."""
FAILURES_TO_QUARANTINE = 5
SUBSCRIPTIONS = {
    "search Thing t register t where t.tag? = 'a'": (W + "Thing", W + "tag", "a"),
    "search Person p register p where p.title? = 'x'": (W + "Person", W + "title", "x"),
}
_LINE = re.compile(r'<([^>]*)> <([^>]*)> (?:<([^>]*)>|"([^"]*)"(?:@([\w-]+))?(?:\^\^<[^>]*>)?) \.')


@dataclass
class Naive:
    """The documents and rules as they should be."""

    limits: Limits
    documents: dict[str, frozenset[Arc]] = field(default_factory=dict)
    rules: dict[int, Rule] = field(default_factory=dict)
    failures: Counter[int] = field(default_factory=Counter)

    def copy(self) -> Naive:
        return replace(self, documents={**self.documents}, rules={**self.rules}, failures=Counter(self.failures))

    def transact(self, run: Callable[[Transaction], None], graph: str = "urn:mdv:updates") -> Prediction:
        """Run a transaction, and the detached copies that follow from it."""
        first, waiting = self._one(run, graph)
        chain: list[Transaction] = []
        most = len(waiting)
        while waiting and len(chain) < MAX_CHAIN:
            parent = waiting.pop(0)
            root = Copy(parent.rule, parent.number, parent.delta, None, parent.depth)

            def execute(tx: Transaction, root: Copy = root) -> None:
                tx.execute(root, root.rule.actions if root.rule else ())

            done, more = self._one(execute, "")
            chain.append(done.transaction)
            waiting += more
            most = max(most, len(waiting))
        return replace(first, is_certain=most <= 1 and not waiting)

    def _one(self, run: Callable[[Transaction], None], graph: str) -> tuple[Prediction, list[Copy]]:
        tx = Transaction(State(self.documents, SCHEMA), self.rules, self.limits, graph)
        problem = None
        try:
            run(tx)
        except Failed:
            return Prediction("update-failed", tx), []
        except RuleFailed:
            problem = "rule-failed"
        except DoesNotEnd:
            problem = "rules-do-not-end"
        self._count(tx)
        if problem is None:
            self.documents = dict(tx.state.documents)
            return Prediction(None, tx), tx.detached
        return Prediction(problem, tx), []

    def _count(self, tx: Transaction) -> None:
        ran = {copy.number for copy in tx.fired if copy.rule and copy.rule.coupling != "Detached"} | {tx.root.number}
        for number in ran - tx.failed - {None}:
            self.failures[number or 0] = 0
        for number in tx.failed:
            self.failures[number] += 1
            if self.failures[number] >= FAILURES_TO_QUARANTINE and self.rules[number].state == "active":
                self.rules[number] = replace(self.rules[number], state="quarantined")


@dataclass(frozen=True)
class Prediction:
    """What a transaction does. `problem`: the last word of the problem's type. `is_certain`: False if detached copies
    could run in different orders."""

    problem: str | None
    transaction: Transaction
    is_certain: bool = True


@dataclass
class OutsideChecker:
    """Random steps on an MDP. `compared`: how often each kind of step was compared, and what happened in them."""

    http: httpx2.Client
    seed: int
    limits: Limits
    compared: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.author, self.writer = Author(self.random), Writer(self.random)
        self.naive = Naive(self.limits)
        self.names = 0
        self.cursor: str | None = None
        self.held: dict[str, frozenset[Arc]] = {}
        self.selected: set[str] = set()
        self.last = ""

    # The API

    def call(self, method: str, path: str, wait: bool = True, **more: Any) -> httpx2.Response:
        headers = more.pop("headers", {}) | ({"Prefer": "wait=60"} if wait else {})
        return self.http.request(method, "/api/v1" + path, headers=headers, **more)

    def get(self, path: str, **query: Any) -> Any:
        answer = self.call("GET", path, wait=False, params=query)
        assert answer.status_code == 200, (path, query, answer.text)
        return answer.json()

    def every(self, path: str, limit: int = 7, **query: Any) -> list[Any]:
        found: list[Any] = []
        after: dict[str, str] = {}
        while True:
            page = self.get(path, limit=limit, **query, **after)
            found += page["items"]
            if page["next"] is None:
                return found
            after = {"after": page["next"]}

    def start(self) -> None:
        """Put the schema, and empty the MDP."""
        for rule in self.every("/eca/rules", 1000):
            assert self.call("DELETE", f"/eca/rules/{rule['id']}").status_code == 200
        for item in self.every("/documents", 1000):
            assert self.call("DELETE", "/documents", params={"uri": item["uri"]}).status_code == 200
        answer = self.call("PUT", "/schema", content=SCHEMA_TEXT, headers={"Content-Type": "text/turtle"})
        assert answer.status_code == 200, answer.text
        for lmr in self.every("/lmrs"):
            if lmr["name"].startswith("outside-"):
                assert self.call("DELETE", f"/lmrs/{lmr['name']}").status_code == 200
        self.lmr = f"outside-{self.seed}"
        assert self.call("POST", "/lmrs", json={"name": self.lmr}).status_code == 201
        for text in SUBSCRIPTIONS:
            answer = self.call("POST", f"/lmrs/{self.lmr}/subscriptions", json={"rule": text})
            assert answer.status_code == 201, answer.text

    # Steps

    def run(self, steps: int) -> None:
        self.start()
        kinds: Sequence[Callable[[], None]] = (
            self.add_rules, self.remove_rule, self.change_state, self.replace_rule, self.delete, self.patch, self.batch,
            *[self.put] * 6, *[self.update] * 7,
        )  # fmt: skip
        for number in range(steps):
            step = self.random.choice(kinds) if number > 4 else self.add_rules
            try:
                step()
                self.check()
            except AssertionError as error:
                texts = "\n\n".join(f"{n} {r.state}: {self.writer.rule(r)}" for n, r in self.naive.rules.items())
                raise AssertionError(
                    f"seed {self.seed}, step {number}: {self.last}\n{error}\nrules:\n{texts}"
                ) from error
            self.compared[step.__name__] += 1

    def add_rules(self) -> None:
        if len(self.naive.rules) >= MAX_RULES:
            return
        made: list[Rule] = []
        for _ in range(self.random.choice((1, 1, 2))):
            self.names += 1
            others = [rule.name for rule in (*self.naive.rules.values(), *made)]
            made.append(self.author.rule(f"rule-{self.names}", others))
        drafts = [{"text": self.writer.rule(one), "set": one.set_} for one in made]
        self.last = f"add {drafts}"
        answer = self.call("POST", "/eca/rules", json=drafts[0] if len(drafts) == 1 else drafts)
        assert answer.status_code == 201, answer.text
        items = answer.json()["items"] if len(drafts) > 1 else [answer.json()]
        for draft, rule, item in zip(drafts, made, items, strict=True):
            assert (item["name"], item["text"]) == (rule.name, draft["text"])
            assert item["id"] > max(self.naive.rules, default=0)
            self.naive.rules[item["id"]] = rule

    def any_rule(self) -> int | None:
        return self.random.choice(sorted(self.naive.rules)) if self.naive.rules else None

    def remove_rule(self) -> None:
        number = self.any_rule()
        if number is None:
            return
        self.last = f"remove {number}"
        name = self.random.choice((str(number), self.naive.rules[number].name))
        assert self.call("DELETE", f"/eca/rules/{name}").status_code == 200
        del self.naive.rules[number]
        del self.naive.failures[number]

    def change_state(self) -> None:
        number = self.any_rule()
        if number is None:
            return
        verb, state = self.random.choice((("enable", "active"), ("enable", "active"), ("disable", "disabled"),
                                          ("shadow", "shadow")))  # fmt: skip
        self.last = f"{verb} {number}"
        assert self.call("POST", f"/eca/rules/{number}/{verb}").status_code == 200
        self.naive.rules[number] = replace(self.naive.rules[number], state=state)  # type: ignore[arg-type]
        del self.naive.failures[number]

    def replace_rule(self) -> None:
        number = self.any_rule()
        if number is None:
            return
        old = self.naive.rules[number]
        state = "active" if old.state == "quarantined" else old.state
        new = replace(self.author.rule(old.name), set_=old.set_, state=state)
        text = self.writer.rule(new)
        self.last = f"replace {number} by {text}"
        answer = self.call("PUT", f"/eca/rules/{number}", json={"text": text})
        assert answer.status_code == 200 and answer.json()["id"] == number, answer.text
        self.naive.rules[number] = new
        del self.naive.failures[number]

    def put(self) -> None:
        uri = self.random.choice(DOCUMENTS)
        arcs = self.author.contents()
        before = self.naive.documents.get(uri)
        if before and self.random.random() < 0.5:  # a small change
            arcs = self.nearly(before)
        self.register(uri, arcs)

    def nearly(self, arcs: frozenset[Arc]) -> frozenset[Arc]:
        for _ in range(20):
            subject, property_, _ = gone = self.random.choice(sorted(arcs, key=str))
            kept = arcs - {gone}
            local = property_.startswith(W)
            found = {*kept, (subject, property_, self.author.value(property_))} if local else {*kept, self.author.arc()}
            if is_valid(found, SCHEMA):
                return frozenset(found)
        return arcs

    def register(self, uri: str, arcs: frozenset[Arc]) -> None:
        self.last = f"put {uri}\n{n_triples(arcs)}"
        self.transact(lambda tx: tx.register({uri: arcs}), lambda dry: self.call(
            "PUT", "/documents", not dry, params={"uri": uri} | ({"dry_run": "true"} if dry else {}),
            content=n_triples(arcs), headers={"Content-Type": "application/n-triples"},
        ))  # fmt: skip

    def delete(self) -> None:
        if not self.naive.documents:
            return
        uri = self.random.choice(sorted(self.naive.documents))
        self.last = f"delete {uri}"
        self.transact(lambda tx: tx.register({uri: frozenset()}), lambda dry: self.call(
            "DELETE", "/documents", not dry, params={"uri": uri} | ({"dry_run": "true"} if dry else {})))  # fmt: skip

    def patch(self) -> None:
        if not self.naive.documents:
            return
        uri = self.random.choice(sorted(self.naive.documents))
        before = self.naive.documents[uri]
        after = self.nearly(before)
        body = {"add": [as_json(arc) for arc in after - before], "remove": [as_json(arc) for arc in before - after]}
        self.last = f"patch {uri} {body}"
        self.transact(lambda tx: tx.register({uri: after}), lambda dry: self.call(
            "PATCH", "/documents", not dry, params={"uri": uri} | ({"dry_run": "true"} if dry else {}), json=body
        ))  # fmt: skip

    def update(self) -> None:
        actions = self.author.update()
        graph = self.random.choice(("urn:mdv:updates", "urn:mdv:updates", DOCUMENTS[0]))
        text = self.writer.actions(actions)
        self.last = f"update {graph}\n{text}"
        query = {"graph": graph} if graph != "urn:mdv:updates" else {}

        def run(tx: Transaction) -> None:
            tx.execute(tx.root, actions)

        done = self.transact(run, lambda dry: self.call(
            "POST", "/update", not dry, params=query | ({"dry_run": "true"} if dry else {}), content=text,
            headers={"Content-Type": "text/x-rdftl"},
        ), graph)  # fmt: skip
        if done is not None:
            prediction, answer = done
            own = [one for copy, _, effects in prediction.transaction.done if copy.rule is None for one in effects]
            counts = {
                "inserted": sum(one.old is None for one in own), "deleted": sum(one.new is None for one in own),
                "updated": sum(None not in (one.old, one.new) for one in own),
            }  # fmt: skip
            assert counts.items() <= answer.items(), (counts, answer)

    def transact(
        self, run: Callable[[Transaction], None], send: Callable[[bool], httpx2.Response], graph: str = ""
    ) -> tuple[Prediction, dict[str, Any]] | None:
        """Predict a transaction, sometimes try it, and send it. Return what was predicted and answered, unless it was
        refused, or left out because the order of detached copies is open."""
        naive = self.naive.copy()
        predicted = naive.transact(run, graph)
        if not predicted.is_certain:
            self.compared["left out"] += 1
            return None
        if self.random.random() < 0.15:
            self.compare_dry_run(predicted, send(True))
        answer = send(False)
        self.naive = naive
        if predicted.problem is not None:
            self.compared[predicted.problem] += 1
            assert answer.status_code == 422, (predicted.problem, answer.text)
            assert answer.json()["type"] == f"urn:mdv:problem:{predicted.problem}", answer.text
            return None
        assert answer.status_code in (200, 201), answer.text
        fired = predicted.transaction.fired
        self.compared["fired"] += len(fired)
        self.compared["undone"] += len(predicted.transaction.undone)
        expected = [fired_json(copy) for copy in fired]
        assert answer.json().get("fired", 0) == len(fired), (answer.text, expected)
        if fired:
            self.check_run(answer.json()["run"], answer.json()["position"], predicted.transaction)
        return predicted, answer.json()

    def compare_dry_run(self, predicted: Prediction, answer: httpx2.Response) -> None:
        self.compared["dry run"] += 1
        if predicted.problem is not None:
            assert answer.status_code == 422, answer.text
            assert answer.json()["type"] == f"urn:mdv:problem:{predicted.problem}", answer.text
            return
        assert answer.status_code == 200, answer.text
        assert answer.json().get("fired") == len(predicted.transaction.fired), answer.text
        if predicted.transaction.fired:
            expected = [fired_json(copy) for copy in predicted.transaction.fired]
            assert copies_of(answer.json()["run"]) == expected, (answer.json()["run"], expected)

    def check_run(self, number: int, position: int, tx: Transaction) -> None:
        """Compare the copies in order of firing, and the log."""
        run = self.get(f"/eca/runs/{number}")
        assert run["position"] == position and run["outcome"] == "done"
        found, expected = copies_of(run["tree"]), [fired_json(copy) for copy in tx.fired]
        assert found == expected, f"fired {found}\nexpected {expected}"
        if tx.undone:
            return
        made = Counter(
            (owner.number, effect.document, is_added, repr(arc))
            for owner, _, effects in tx.done for effect in effects
            for is_added, arc in ((False, effect.old), (True, effect.new)) if arc is not None
        )  # fmt: skip
        log = Counter(
            (one["rule_id"], one["document"], one["added"], repr(from_json(one["statement"])))
            for one in self.every("/eca/log", run=number)
        )
        assert log == made, f"log {log - made}\nexpected {made - log}"

    def batch(self) -> None:
        """Send registrations without waiting, so that a worker takes several at once."""
        if any(rule.coupling == "Detached" for rule in self.naive.rules.values()):
            return
        bodies = {uri: self.author.contents() for uri in DOCUMENTS}
        self.last = "batch\n" + "\n".join(f"{uri}\n{n_triples(arcs)}" for uri, arcs in bodies.items())
        jobs = {}
        for uri, arcs in bodies.items():
            answer = self.call("PUT", "/documents", False, params={"uri": uri}, content=n_triples(arcs),
                               headers={"Content-Type": "application/n-triples"})  # fmt: skip
            assert answer.status_code == 202, answer.text
            jobs[uri] = answer.json()["job"]
        ended = {uri: self.ended(job) for uri, job in jobs.items()}
        changes = {uri: arcs for uri, arcs in bodies.items() if ended[uri]["state"] == "done"}
        order = sorted(changes, key=lambda uri: ended[uri]["result"]["position"])
        refused = [uri for uri in bodies if uri not in changes]
        self.compared["refused in a batch"] += len(refused)
        if refused:
            # Where a refused one was tried is not known: the others must be explained by one place.
            self.replay_with(order, refused, bodies, ended)
            return
        for uri in order:
            self.replay(self.naive, uri, bodies[uri], ended[uri])

    def replay(self, naive: Naive, uri: str, arcs: frozenset[Arc], ended: Mapping[str, Any]) -> None:
        predicted = naive.transact(lambda tx: tx.register({uri: arcs}))
        if ended["state"] == "failed":
            assert predicted.problem is not None, (uri, ended)
            assert ended["problem"]["type"] == f"urn:mdv:problem:{predicted.problem}", (uri, ended)
            return
        assert predicted.problem is None, (uri, predicted.problem, ended)
        assert (ended["result"].get("fired") or 0) == len(predicted.transaction.fired), (uri, ended)

    def replay_with(
        self, order: Sequence[str], refused: Sequence[str], bodies: Mapping[str, frozenset[Arc]],
        ended: Mapping[str, Mapping[str, Any]],
    ) -> None:  # fmt: skip
        orders = [list(order)]
        for uri in refused:
            orders = [[*one[:place], uri, *one[place:]] for one in orders for place in range(len(one) + 1)]
        reasons = []
        documents = self.read_documents()
        for one in orders:
            naive = self.naive.copy()
            try:
                for uri in one:
                    self.replay(naive, uri, bodies[uri], ended[uri])
                assert naive.documents == documents
            except AssertionError as error:
                reasons.append(str(error))
                continue
            self.naive = naive
            return
        raise AssertionError(f"no order explains the batch: {reasons}")

    def ended(self, job: str) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            body: dict[str, Any] = self.get(f"/jobs/{job}")
            return body if body["state"] in ("done", "failed") else None

        return eventually(found)  # type: ignore[no-any-return]

    # The state after a step

    def check(self) -> None:
        eventually(lambda: not self.get("/jobs", state="queued")["items"])
        found = self.read_documents()
        if found != self.naive.documents:
            every = found.keys() | self.naive.documents.keys()
            differences = {
                uri: (found.get(uri, frozenset()) - self.naive.documents.get(uri, frozenset()),
                      self.naive.documents.get(uri, frozenset()) - found.get(uri, frozenset()))
                for uri in sorted(every) if found.get(uri) != self.naive.documents.get(uri)
            }  # fmt: skip
            raise AssertionError(f"documents (too much, missing): {differences}")
        states = {rule["id"]: rule["state"] for rule in self.every("/eca/rules", 3)}
        assert states == {number: rule.state for number, rule in self.naive.rules.items()}, states
        self.compared["quarantined"] += sum(state == "quarantined" for state in states.values())
        self.check_cache()

    def read_documents(self) -> dict[str, frozenset[Arc]]:
        found = {}
        for item in self.every("/documents", 3):
            answer = self.call("GET", "/documents", False, params={"uri": item["uri"]},
                               headers={"Accept": "application/n-triples"})  # fmt: skip
            assert answer.status_code == 200, answer.text
            found[item["uri"]] = frozenset(map(parse_line, answer.text.splitlines()))
        return found

    def check_cache(self) -> None:
        """Follow the feed of the LMR: it holds what the subscriptions select, with all statements."""
        is_complete = False
        while not is_complete:
            after = {"after": self.cursor} if self.cursor is not None else {}
            page = self.get(f"/lmrs/{self.lmr}/feed", limit=50, **after)
            for event in page["events"]:
                self.apply(event)
            self.cursor, is_complete = page["cursor"], page["up_to_date"]
        state = State(self.naive.documents, SCHEMA)
        expected = {
            uri for class_, property_, text in SUBSCRIPTIONS.values() for uri in state.extension(class_)
            if any(s == uri and p == property_ and isinstance(o, Text) and o.text == text for s, p, o in state.stated)
        }  # fmt: skip
        assert self.selected == expected, (self.selected, expected)
        for uri in expected:
            assert self.held[uri] == {arc for arc in state.stated if arc[0] == uri}, (uri, self.held[uri])

    def apply(self, event: Mapping[str, Any]) -> None:
        uri = event.get("resource", "")
        match event["event"]:
            case "put":
                self.held[uri] = frozenset(from_json((uri, *one)) for one in event["statements"])
            case "match":
                self.selected.add(uri)
            case "unmatch" | "delete":
                self.selected.discard(uri)


def parse_line(line: str) -> Arc:
    found = _LINE.fullmatch(line)
    assert found is not None, line
    subject, property_, uri, text, lang = found.groups()
    return subject, property_, uri if uri is not None else Text(text, lang or "")


def term_json(value: Value) -> dict[str, str]:
    if isinstance(value, str):
        return {"type": "uri", "value": value}
    return {"type": "literal", "value": value.text} | ({"lang": value.lang} if value.lang else {})


def as_json(arc: Arc) -> list[Any]:
    return [arc[0], arc[1], term_json(arc[2])]


def from_json(statement: Sequence[Any]) -> Arc:
    subject, property_, term = statement
    value = term["value"] if term["type"] == "uri" else Text(term["value"], term.get("lang", ""))
    return subject, property_, value


def fired_json(copy: Copy) -> tuple[int | None, dict[str, Any] | None]:
    return copy.number, delta_json(copy.delta)


def delta_json(delta: Delta | None) -> dict[str, Any] | None:
    if delta is None:
        return None
    found: dict[str, Any] = {"source": delta.source} | ({"arc_name": delta.arc} if delta.arc else {})
    for name, value in (("target", delta.target), ("new_target", delta.new)):
        found |= {name: term_json(value)} if value is not None else {}
    return found


def copies_of(tree: Mapping[str, Any]) -> list[tuple[int, Any]]:
    """Return the copies of a run in the order in which they fired."""
    found: dict[int, tuple[int, Any]] = {}
    waiting: list[Any] = [*tree["copies"], *tree["updates"], *tree["continued"]]
    while waiting:
        node = waiting.pop()
        if "copy" in node:
            found[node["copy"]] = node["rule"], node["delta"]
        waiting += node.get("copies", []) + node.get("updates", [])
    return [found[number] for number in sorted(found)]
