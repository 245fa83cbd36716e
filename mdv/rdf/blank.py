"""Stable names for blank nodes, computed from their content and from the statements that refer to them.

Law: isomorphic versions of a document get the same names, whatever their blank node ids and the order of their
statements. The named document is isomorphic to the original.

1. Linked blank nodes form a component. Each component is named separately, so a change elsewhere in the document
   renames nothing. Most components are a single node, which is named by its content alone.
2. `refine` partitions the nodes of a component into cells until all nodes of a cell have the same content and the same
   links to every other cell.
3. `order` ignores the links that the cells imply (every node of one cell to every node of another, which includes all
   links of a node that is alone in its cell). The remaining connected parts are ordered separately. Equal parts are
   twins: any order of them gives the same result.
4. `choose` handles parts that cannot be divided (mostly cycles). It individualises one node of a cell, refines,
   recurses, and keeps the choice with the smallest form. Choices that are equivalent under a known symmetry are tried
   once.

Step 4 can take exponential time, so the work is limited. The other steps take O(n log n).
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

# One unit of work is the visit of one link, which takes about a microsecond. A cell costs WORK_PER_CELL units.
# If step 4 is not needed, a list of 50,000 nodes uses a sixth of the limit, a tree of 130,000 nodes with twins half.
# A document that reaches the limit has taken about a second, plus 0.1 ms for each link.
BASE_WORK = 1_000_000
WORK_PER_LINK = 60
WORK_PER_CELL = 8
MAX_CHOICE_DEPTH = 100  # far below Python's recursion limit

Link = tuple[int, str]
"""The other node, and the link from its point of view: `<p` is incoming, `>p` is outgoing."""


def name_blank_nodes(parsed: ParsedDocument, work_limit: int | None = None) -> Document:
    """Return `parsed` with stable names, `D#_:NAME`, for its blank nodes. Twins get an ordinal as a suffix.

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
    return Document(parsed.uri, tuple(sorted(statements, key=Statement.sort_key)), parsed.prefixes)


def _renamed(statement: Statement, names: dict[str, str]) -> Statement:
    subject, property, object = statement
    if object.type == "blank":
        return Statement(names.get(subject, subject), property, Term("uri", names[object.value]))
    if subject in names:
        return Statement(names[subject], property, object)
    return statement


class _Blanks(NamedTuple):
    """The blank nodes of a document, indexed by number: their ids, their content and the links between them."""

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
            entry = f">\0{property}\0{object.type}\0{value}\0{lang or ''}\0{datatype or ''}"
            blanks.content[number(subject)].append(entry)
        elif to_blank:
            blanks.content[number(object.value)].append(f"<\0{property}\0{subject}")
    return blanks


def _digest(*parts: str) -> str:
    # No term contains NUL, and the first part determines the number of parts: the encoding is unambiguous.
    return blake2b("\0".join(parts).encode(), digest_size=20).hexdigest()


def _names(blanks: _Blanks, prefix: str, work_limit: int | None) -> dict[str, str]:
    """Return the name of each blank node id."""
    if work_limit is None:
        work_limit = BASE_WORK + WORK_PER_LINK * sum(map(len, blanks.links)) // 2  # each link has two ends
    contents = [_digest(*sorted(entries)) for entries in blanks.content]
    search = _Search(blanks.links, work_limit)
    digests: list[tuple[str, int]] = []
    for nodes in _components(blanks.links):
        if len(nodes) == 1:
            digests.append((contents[nodes[0]], nodes[0]))
        else:
            digests += search.digests(nodes, contents)
    # The sort is stable: twins stay in the order of their component, and twin components stay adjacent.
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
    """Union-find over nodes: two nodes are in one orbit if a known symmetry maps one to the other."""

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
    """Search for the canonical order of the nodes of a component, within a work limit.

    A label identifies the cell of a node. It is a digest of the whole refinement: if two graphs have the same labels,
    they have the same links between cells. A form consists of labels, so only isomorphic graphs have equal forms.
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
        hint = "give these nodes URIs, or add a statement to each that distinguishes it from the others"
        message = f"{len(self.component)} linked blank nodes are too similar to be named"
        raise InvalidDocument(
            f"{message} within the work limit: {hint}.", [Flaw(message, property=property, hint=hint)]
        )

    def digests(self, nodes: list[int], contents: list[str]) -> list[tuple[str, int]]:
        """Return the nodes of a component in canonical order with their digests. Nodes with equal digests are twins."""
        self.component = nodes
        cells = _group(nodes, contents)
        colours = sorted(cells)
        _, label = self.refine(colours, [set(cells[colour]) for colour in colours], range(len(colours)))
        form, order = self.order(nodes, label, _Orbits(), 0)
        return [(_digest(form, label[node]), node) for node in order]

    def refine(self, colours: list[str], cells: list[set[int]], start: Iterable[int]) -> tuple[str, dict[int, str]]:
        """Split `cells` until all nodes of a cell have the same links to every other cell. Begin with cells `start`.

        Uses Hopcroft's algorithm: after a processed cell is split, all pieces but the largest are queued.
        Every choice (the next cell, the piece that keeps the number) depends on cell numbers, links and sizes, never
        on node numbers. So isomorphic graphs get the same cells. Returns a digest of the cells, and each node's label.
        """
        links = self.links
        cell_of = {node: number for number, cell in enumerate(cells) for node in cell}
        self.spend(len(cell_of))
        queue = deque(start)
        queued = set(queue)
        while queue:
            splitter = queue.popleft()
            queued.discard(splitter)
            reached: defaultdict[int, list[str]] = defaultdict(list)
            work = WORK_PER_CELL
            for node in cells[splitter]:
                work += len(links[node])
                for other, link in links[node]:
                    if other in cell_of:
                        reached[other].append(link)
            self.spend(work)
            pieces: defaultdict[int, defaultdict[tuple[str, ...], list[int]]] = defaultdict(lambda: defaultdict(list))
            for node, links_to_splitter in reached.items():
                number = cell_of[node]
                if len(cells[number]) > 1:
                    pieces[number][tuple(sorted(links_to_splitter))].append(node)
            for number in sorted(pieces):
                cell = cells[number]
                split = [piece for _, piece in sorted(pieces[number].items())]
                if sum(map(len, split)) == len(cell):
                    split.remove(max(split, key=len))  # the first of the largest
                numbers = [number]
                for piece in split:
                    cell.difference_update(piece)
                    numbers.append(len(cells))
                    cell_of.update(dict.fromkeys(piece, len(cells)))
                    cells.append(set(piece))
                    colours.append(colours[number])
                if number in queued:
                    numbers.remove(number)
                else:
                    numbers.remove(max(numbers, key=lambda number: len(cells[number])))
                queued.update(numbers)
                queue.extend(numbers)
        shapes = []
        for colour, cell in zip(colours, cells, strict=True):
            node = next(iter(cell))
            around = sorted((cell_of[other], link) for other, link in links[node] if other in cell_of)
            shapes.append((colour, len(cell), around))
        trace = _digest(repr(shapes))
        labels = [_digest(trace, str(number)) for number in range(len(cells))]
        return trace, {node: labels[number] for node, number in cell_of.items()}

    def order(self, nodes: list[int], label: dict[int, str], orbits: _Orbits, depth: int) -> tuple[str, list[int]]:
        """Return the form of the subgraph of `nodes`, and the nodes in canonical order."""
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
        """Return the connected parts of `nodes` after removing the links that the labels imply."""
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
        """`order` for an indivisible part: individualise each node of the smallest cell, and keep the least form."""
        if depth == MAX_CHOICE_DEPTH:
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
            # This is the least form of another graph. The two are isomorphic, so it is the least form of this one too.
            if form in self.known:
                break
        assert best is not None
        self.known.add(best[1])
        # A symmetry that fixes the chosen node is also a symmetry of the graph without the choice.
        orbits.unite(nodes, [symmetries.find(node) for node in nodes])
        return best[1], best_order


def _group(nodes: list[int], key: dict[int, str] | list[str]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for node in nodes:
        groups.setdefault(key[node], []).append(node)
    return groups
