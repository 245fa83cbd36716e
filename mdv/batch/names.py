"""Names: how a document of a batch gets its URI, from where it lies."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mdv.batch.unpack import without_packing
from mdv.errors import BadCommand, BadRequest, MdvError
from mdv.rdf.parse import check_document_uri
from mdv.uris import below, quoted

_FIELD = re.compile(r"\{(\w+)\}")
_OWN_FIELDS = ("0", "path", "name", "stem")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:)(//[^/]*)?(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Naming:
    """How documents are named: below a base, by a pattern, by a manifest, or else by their own places.

    The path that it speaks of is the one below the folder that was given, the file's name, or the path in an archive.

    >>> Naming(base="http://example.org/").uri("file:/books/a b.ttl", "a b.ttl")
    'http://example.org/a%20b.ttl'
    >>> Naming(pattern="http://www.gutenberg.org/cache/epub/{1}/pg{1}.rdf").uri("file:/x.tar", "2014/pg42.rdf")
    'http://www.gutenberg.org/cache/epub/42/pg42.rdf'
    >>> Naming().uri("file:/books.zip", "a b.ttl", in_archive=True)
    'file:///books.zip!/a%20b.ttl'
    """

    base: str | None = None
    pattern: str | None = None
    match: str | None = None
    manifest: str | None = None

    def __post_init__(self) -> None:
        if sum(option is not None for option in (self.base, self.pattern, self.manifest)) > 1:
            raise BadCommand("--uri-base, --uri and --manifest each name the documents: say one of them.")
        if self.match is not None and self.pattern is None:
            raise BadCommand("--match finds the parts of a path that --uri puts together: say --uri, too.")
        if self.pattern is not None:
            self._check_pattern(self.pattern)
        if self.base is not None:
            _check_example("--uri-base", self.base, below(self.base, "1"))

    def _check_pattern(self, pattern: str) -> None:
        groups: set[str] = set()
        if self.match is not None:
            try:
                match = re.compile(self.match)
            except re.error as error:
                raise BadCommand(f"--match {self.match!r} is not a regular expression: {error}.") from None
            groups = {str(number) for number in range(1, match.groups + 1)} | match.groupindex.keys()
        fields = _FIELD.findall(pattern)
        unknown = [name for name in fields if name not in groups and name not in _OWN_FIELDS
                   and not (self.match is None and name.isdecimal())]  # fmt: skip
        if unknown:
            known = ", ".join(f"{{{name}}}" for name in (sorted(groups) or ["1", "2"]) + list(_OWN_FIELDS[1:]))
            raise BadCommand(f"--uri {pattern!r} speaks of {{{unknown[0]}}}, which no path has; there are {known}.")
        if not fields:
            raise BadCommand(
                f"--uri {pattern!r} gives every document the same name: put {{1}}, the first number in the file's name,"
                " {stem}, {name} or {path} where they differ."
            )
        _check_example("--uri", pattern, _FIELD.sub("1", pattern))

    def uri(self, path: str, relative: str, in_archive: bool = False) -> str:
        """The URI of the document `relative` of the file `path`, a URL as Spark writes it."""
        if self.pattern is not None:
            uri = self._fit(self.pattern, relative)
        elif self.base is not None:
            uri = below(self.base, relative)
        else:
            uri = own_uri(path) + (f"!/{quoted(relative)}" if in_archive else "")
        return check_document_uri(uri)

    def _fit(self, pattern: str, relative: str) -> str:
        name = relative.rpartition("/")[2]
        unpacked = without_packing(name)[0]
        stem = unpacked.rpartition(".")[0] or unpacked
        values: dict[str, str | None] = {"0": relative, "path": relative, "name": name, "stem": stem}
        if self.match is None:
            values |= {str(place): number for place, number in enumerate(re.findall("[0-9]+", name), 1)}
        elif found := re.search(self.match, relative):
            values |= {str(place): value for place, value in enumerate(found.groups(), 1)} | found.groupdict()
        else:
            raise BadRequest(f"{relative!r} does not match --match {self.match!r}, so --uri cannot name it.")
        missing = next((name for name in _FIELD.findall(pattern) if values.get(name) is None), None)
        if missing is not None:
            raise BadRequest(f"{relative!r} has nothing for {{{missing}}} of --uri {pattern!r}.")
        return _FIELD.sub(lambda field: quoted(values[field[1]] or ""), pattern)


def own_uri(path: str) -> str:
    """The URI of a file that Spark calls `path`.

    >>> own_uri("file:/tmp/a b.ttl"), own_uri("hdfs://host:8020/100%.ttl")
    ('file:///tmp/a%20b.ttl', 'hdfs://host:8020/100%25.ttl')
    """
    if (url := _URL.fullmatch(path)) is None:
        raise BadRequest(f"{path!r} is not the URL of a file.")
    return url[1] + (url[2] or "//") + quoted(url[3])


def _check_example(option: str, given: str, example: str) -> None:
    try:
        check_document_uri(example)
    except MdvError as error:
        raise BadCommand(f"{option} {given!r} cannot name a document: {error.detail}") from None
