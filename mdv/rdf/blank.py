"""Names for blank nodes, made from their content and the edges that lead to them.

The law: the same document has the same names next time, whatever its own ids and order, and reads back isomorphic.

1. Blank nodes that are linked form a component, and each component is named on its own: a change elsewhere
   in the document renames nothing. Most components are a single node, and its content is its name.
2. `refine` sorts the nodes of a component into cells until all nodes of a cell have the same content and the same
   links to every other cell.
3. `order` leaves out the links that the cells imply (all of one cell to all of another, so every link of a node that
   is alone in its cell). What then falls apart is ordered apart; equal parts are twins, and any order of them will do.
4. `choose`, for what does not fall apart (cycles, mostly): picks one node of a cell out, refines, goes on, and takes
   the pick that leads to the least form. Picks that a known symmetry exchanges are tried once.

Step 4 can take exponential time, hence the work limit. The other steps are linear but for a logarithm.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple, NoReturn

from mdv.errors import Flaw, InvalidDocument
from mdv.model import BLANK_MARK, Document, ParsedDocument, Statement, Term

NAME_LENGTH = 20

# The unit of work is one look at a link, about a microsecond; a cell costs as much as some links.
# Where no choice is needed, a list of 50,000 nodes takes a sixth of the limit, a tree of 130,000 nodes, twins, half.
# A document that reaches the limit has taken a second or so, and 0.1 ms more for each link.
BASE_WORK = 1_000_000
WORK_PER_LINK = 60
WORK_PER_CELL = 8
DEEPEST_CHOICE = 100  # far within Python's own limit of recursion

Link = tuple[int, str]
"""The node at the other end, and the link as that node sees it: `<p` comes in, `>p` goes out."""


def name_blank_nodes(parsed: ParsedDocument, work_limit: int | None = None) -> Document:
    """`parsed` with lasting names, `D#_:NAME`, for its blank nodes; twins are told apart by an ordinal.

    >>> def name(*ids):
    ...     return name_blank_nodes(ParsedDocument("http://a/d", tuple(
    ...         Statement(f"_:{id}", "http://a/p", Term.literal(text)) for id, text in ids)))
    >>> for subject, _, value in name(("x", "one"), ("y", "two")).statements:
    ...     print(subject, value.value)
    http://a/d#_:01679c8eb26e81712f7e one
    http://a/d#_:214e46bbefe6993347c0 two
    >>> name(("n1", "two"), ("n2", "one")) == name(("x", "one"), ("y", "two"))
    True
    >>> [statement.subject for statement in name(("n1", "one"), ("n2", "one")).statements]
    ['http://a/d#_:01679c8eb26e81712f7e', 'http://a/d#_:01679c8eb26e81712f7e-2']
    """
    statements = dict.fromkeys(parsed.statements)
    blanks = _read(statements)
    if blanks.ids:
        names = _names(blanks, parsed.uri + BLANK_MARK, work_limit)
        statements = dict.fromkeys([_renamed(statement, names) for statement in statements])
    return Document(parsed.uri, tuple(sorted(statements, key=_sort_key)), parsed.prefixes)


def _sort_key(statement: Statement) -> tuple[str, ...]:
    subject, property, (type, value, lang, datatype) = statement
    return subject, property, type, value, lang or "", datatype or ""


def _renamed(statement: Statement, names: dict[str, str]) -> Statement:
    subject, property, object = statement
    if object.type == "blank":
        return Statement(names.get(subject, subject), property, Term("uri", names[object.value]))
    if subject in names:
        return Statement(names[subject], property, object)
    return statement


class _Blanks(NamedTuple):
    """The blank nodes of a document, by number: their ids, what is said of them, and the links between them."""

    ids: list[str]
    content: list[list[str]]
    links: list[list[Link]]


def _read(statements: Iterable[Statement]) -> _Blanks:
    numbers: dict[str, int] = {}
    blanks = _Blanks([], [], [])

    def number(id: str) -> int:
        if id not in numbers:
            numbers[id] = len(numbers)
            blanks.ids.append(id)
            blanks.content.append([])
            blanks.links.append([])
        return numbers[id]

    for subject, property, object in statements:
        from_blank, to_blank = subject.startswith("_:"), object.type == "blank"
        if from_blank and to_blank:
            source, target = number(subject), number(object.value)
            if source == target:
                blanks.content[source].append(f"@\0{property}")
            else:
                blanks.links[source].append((target, sys.intern("<" + property)))
                blanks.links[target].append((source, sys.intern(">" + property)))
        elif from_blank:
            _, value, lang, datatype = object
            said = f">\0{property}\0{object.type}\0{value}\0{lang or ''}\0{datatype or ''}"
            blanks.content[number(subject)].append(said)
        elif to_blank:
            blanks.content[number(object.value)].append(f"<\0{property}\0{subject}")
    return blanks


def _digest(*parts: str) -> str:
    # NUL occurs in no term, and a first part tells how many follow: different parts never join to the same text.
    return blake2b("\0".join(parts).encode(), digest_size=20).hexdigest()


def _names(blanks: _Blanks, prefix: str, work_limit: int | None) -> dict[str, str]:
    """The name of each id."""
    if work_limit is None:
        work_limit = BASE_WORK + WORK_PER_LINK * sum(map(len, blanks.links)) // 2  # each link has two ends
    contents = [_digest(*sorted(said)) for said in blanks.content]
    search = _Search(blanks.links, work_limit)
    digests: list[tuple[str, int]] = []
    for nodes in _components(blanks.links):
        if len(nodes) == 1:
            digests.append((contents[nodes[0]], nodes[0]))
        else:
            digests += search.digests(nodes, contents)
    # A stable sort: twins stay in their component's order, and twin components one behind the other.
    digests.sort(key=itemgetter(0))
    names: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for digest, node in digests:
        name = digest[:NAME_LENGTH]
        seen[name] += 1
        names[blanks.ids[node]] = f"{prefix}{name}-{seen[name]}" if seen[name] > 1 else prefix + name
    return names


def _components(links: list[list[Link]]) -> list[list[int]]:
    components = []
    seen = [False] * len(links)
    for start in range(len(links)):
        if not seen[start]:
            seen[start] = True
            component = [start]
            for node in component:
                for other, _ in links[node]:
                    if not seen[other]:
                        seen[other] = True
                        component.append(other)
            components.append(component)
    return components


class _Orbits:
    """Nodes that a known symmetry carries into each other."""

    def __init__(self) -> None:
        self.parent: dict[int, int] = {}

    def find(self, node: int) -> int:
        while (parent := self.parent.get(node, node)) != node:
            self.parent[node] = self.parent.get(parent, parent)
            node = parent
        return node

    def unite(self, nodes: Iterable[int], others: Iterable[int]) -> None:
        for node, other in zip(nodes, others, strict=True):
            self.parent[self.find(node)] = self.find(other)


class _Search:
    """The search for the canonical order of a component's nodes, with an account of the work.

    A label stands for a node's cell. It is a digest of all that refining found, so that where the labels of two
    graphs agree, the links between the cells do: a form, made of labels, is the same for isomorphic graphs only.
    """

    def __init__(self, links: list[list[Link]], work_limit: int) -> None:
        self.links = links
        self.work_left = work_limit
        self.known: set[str] = set()
        self.component: Sequence[int] = ()

    def spend(self, work: int) -> None:
        self.work_left -= work
        if self.work_left < 0:
            self.give_up()

    def give_up(self) -> NoReturn:
        property = min(link[1:] for node in self.component for _, link in self.links[node])
        hint = "give these nodes URIs, or say something of each that tells it from the others"
        message = f"{len(self.component)} linked blank nodes are too much alike to be named"
        raise InvalidDocument(
            f"{message} within the limit of work: {hint}.", [Flaw(message, property=property, hint=hint)]
        )

    def digests(self, nodes: list[int], contents: list[str]) -> list[tuple[str, int]]:
        """The nodes of a component in canonical order, each with its digest: nodes with the same digest are twins."""
        self.component = nodes
        cells = _group(nodes, contents)
        colours = sorted(cells)
        _, label = self.refine(colours, [set(cells[colour]) for colour in colours], range(len(colours)))
        form, order = self.order(nodes, label, _Orbits(), 0)
        return [(_digest(form, label[node]), node) for node in order]

    def refine(self, colours: list[str], cells: list[set[int]], start: Iterable[int]) -> tuple[str, dict[int, str]]:
        """Split `cells` until each has the same links to every other, first by the links to the cells `start`.

        Hopcroft's way: of the pieces of a cell that was looked at, all but the largest need a look.
        Every choice made here (which cell next, which piece keeps the number) is by cell number, links and size,
        never by node: isomorphic graphs get the same cells. Returns a digest of the cells, and each node's label.
        """
        links = self.links
        where = {node: number for number, cell in enumerate(cells) for node in cell}
        self.spend(len(where))
        queue = deque(start)
        waiting = set(queue)
        while queue:
            splitter = queue.popleft()
            waiting.discard(splitter)
            met: defaultdict[int, list[str]] = defaultdict(list)
            work = WORK_PER_CELL
            for node in cells[splitter]:
                work += len(links[node])
                for other, link in links[node]:
                    if other in where:
                        met[other].append(link)
            self.spend(work)
            pieces: defaultdict[int, defaultdict[tuple[str, ...], list[int]]] = defaultdict(lambda: defaultdict(list))
            for node, met_links in met.items():
                number = where[node]
                if len(cells[number]) > 1:
                    pieces[number][tuple(sorted(met_links))].append(node)
            for number in sorted(pieces):
                cell = cells[number]
                split = [piece for _, piece in sorted(pieces[number].items())]
                if sum(map(len, split)) == len(cell):
                    split.remove(max(split, key=len))  # the first of the largest
                numbers = [number]
                for piece in split:
                    cell.difference_update(piece)
                    numbers.append(len(cells))
                    where.update(dict.fromkeys(piece, len(cells)))
                    cells.append(set(piece))
                    colours.append(colours[number])
                if number in waiting:
                    numbers.remove(number)
                else:
                    numbers.remove(max(numbers, key=lambda number: len(cells[number])))
                waiting.update(numbers)
                queue.extend(numbers)
        shapes = []
        for colour, cell in zip(colours, cells, strict=True):
            node = next(iter(cell))
            around = sorted((where[other], link) for other, link in links[node] if other in where)
            shapes.append((colour, len(cell), around))
        trace = _digest(repr(shapes))
        labels = [_digest(trace, str(number)) for number in range(len(cells))]
        return trace, {node: labels[number] for node, number in where.items()}

    def order(self, nodes: list[int], label: dict[int, str], orbits: _Orbits, depth: int) -> tuple[str, list[int]]:
        """The form of the graph of `nodes`, and the nodes in the order that it gives them."""
        parts = self.split(nodes, label)
        if len(parts) == 1:
            return self.choose(nodes, label, orbits, depth)
        forms = [self.order(part, label, orbits, depth) if len(part) > 1 else (label[part[0]], part) for part in parts]
        forms.sort(key=itemgetter(0))
        for (form, twin), (next_form, next_twin) in pairwise(forms):
            if form == next_form:
                orbits.unite(twin, next_twin)
        return _digest(*(form for form, _ in forms)), [node for _, part in forms for node in part]

    def split(self, nodes: list[int], label: dict[int, str]) -> list[list[int]]:
        """The parts that `nodes` fall into without the links that the labels imply."""
        links = self.links
        size = Counter([label[node] for node in nodes])
        if len(size) == len(nodes):
            return [[node] for node in nodes]
        left = set(nodes)
        implied = set()
        for mine, node in {label[node]: node for node in nodes}.items():
            around = Counter([(link, label[other]) for other, link in links[node] if other in left])
            for (link, other_label), count in around.items():
                if count == size[other_label] - (mine == other_label):
                    implied.add((mine, link, other_label))
        parts = []
        for start in nodes:
            if start in left:
                left.remove(start)
                part = [start]
                for node in part:
                    mine = label[node]
                    for other, link in links[node]:
                        if other in left and (mine, link, label[other]) not in implied:
                            left.remove(other)
                            part.append(other)
                parts.append(part)
        self.spend(sum(len(links[node]) for node in nodes))
        return parts

    def choose(self, nodes: list[int], label: dict[int, str], orbits: _Orbits, depth: int) -> tuple[str, list[int]]:
        """`order` for nodes that do not fall apart: pick each node of the smallest cell out, take the least form."""
        if depth == DEEPEST_CHOICE:
            self.give_up()
        cells = _group(nodes, label)
        colours = sorted(cells)
        chosen = min(colours, key=lambda colour: len(cells[colour]))
        symmetries = _Orbits()
        tried: list[int] = []
        best: tuple[str, str] | None = None
        best_order: list[int] = []
        for pick in cells[chosen]:
            if symmetries.find(pick) in {symmetries.find(node) for node in tried}:
                continue
            tried.append(pick)
            pieces = [set(cells[colour]) - {pick} for colour in colours]
            trace, finer = self.refine([*colours, chosen], [*pieces, {pick}], [len(colours)])
            if best is not None and trace > best[0]:
                continue
            form, order = self.order(nodes, finer, symmetries, depth + 1)
            if best is None or (trace, form) < best:
                best, best_order = (trace, form), order
            elif (trace, form) == best:
                symmetries.unite(best_order, order)
            # The least form of another graph: the two are isomorphic, so it is the least form of this one.
            if form in self.known:
                break
        assert best is not None
        self.known.add(best[1])
        # A symmetry that keeps a pick in its place is a symmetry without the pick, too.
        orbits.unite(nodes, [symmetries.find(node) for node in nodes])
        return best[1], best_order


def _group(nodes: list[int], key: dict[int, str] | list[str]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for node in nodes:
        groups.setdefault(key[node], []).append(node)
    return groups
