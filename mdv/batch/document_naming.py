"""Give each document of a batch a URI, by its location."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mdv.batch.decompress import split_compression_suffix
from mdv.errors import BadCommand, BadRequest, MdvError
from mdv.rdf.parse import check_registration_uri
from mdv.uris import join_uri, quote_path

_FIELD = re.compile(r"\{(\w+)\}")
_BUILTIN_FIELDS = ("0", "path", "name", "stem")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:)(//[^/]*)?(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Naming:
    """How documents are named: below a base URI, by a pattern, by a manifest, or else by their own locations.

    Patterns apply to the relative path: the path below the given folder, the file's name, or the path in an archive.

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
            raise BadCommand("--uri-base, --uri and --manifest exclude each other. Use only one of them.")
        if self.match is not None and self.pattern is None:
            raise BadCommand("--match needs --uri: it extracts the parts of a path that --uri inserts. Add --uri.")
        if self.pattern is not None:
            self._check_pattern(self.pattern)
        if self.base is not None:
            _check_example("--uri-base", self.base, join_uri(self.base, "1"))

    def _check_pattern(self, pattern: str) -> None:
        groups: set[str] = set()
        if self.match is not None:
            try:
                match = re.compile(self.match)
            except re.error as error:
                raise BadCommand(f"--match {self.match!r} is not a regular expression: {error}.") from None
            groups = {str(number) for number in range(1, match.groups + 1)} | match.groupindex.keys()
        fields = _FIELD.findall(pattern)
        unknown = [name for name in fields if name not in groups and name not in _BUILTIN_FIELDS
                   and not (self.match is None and name.isdecimal())]  # fmt: skip
        if unknown:
            known = ", ".join(f"{{{name}}}" for name in (sorted(groups) or ["1", "2"]) + list(_BUILTIN_FIELDS[1:]))
            raise BadCommand(f"--uri {pattern!r} contains {{{unknown[0]}}}, which is unknown. Known are {known}.")
        if not fields:
            raise BadCommand(
                f"--uri {pattern!r} gives every document the same URI. Insert {{1}}, the first number in the file's"
                " name, {stem}, {name} or {path}."
            )
        _check_example("--uri", pattern, _FIELD.sub("1", pattern))

    def uri(self, path: str, relative: str, in_archive: bool = False) -> str:
        """Return the URI of the document `relative` of the file `path`, a URL as Spark writes it."""
        if self.pattern is not None:
            uri = self._expand_pattern(self.pattern, relative)
        elif self.base is not None:
            uri = join_uri(self.base, relative)
        else:
            uri = file_uri(path) + (f"!/{quote_path(relative)}" if in_archive else "")
        return check_registration_uri(uri)

    def _expand_pattern(self, pattern: str, relative: str) -> str:
        name = relative.rpartition("/")[2]
        unpacked = split_compression_suffix(name)[0]
        stem = unpacked.rpartition(".")[0] or unpacked
        values: dict[str, str | None] = {"0": relative, "path": relative, "name": name, "stem": stem}
        if self.match is None:
            values |= {str(index): number for index, number in enumerate(re.findall("[0-9]+", name), 1)}
        elif found := re.search(self.match, relative):
            values |= {str(index): value for index, value in enumerate(found.groups(), 1)} | found.groupdict()
        else:
            raise BadRequest(
                f"{relative!r} does not match --match {self.match!r}, so --uri cannot name it."
                " Change --match or exclude the file."
            )
        missing = next((name for name in _FIELD.findall(pattern) if values.get(name) is None), None)
        if missing is not None:
            raise BadRequest(
                f"{relative!r} has no value for {{{missing}}} of --uri {pattern!r}. Change --uri or exclude the file."
            )
        return _FIELD.sub(lambda field: quote_path(values[field[1]] or ""), pattern)


def file_uri(path: str) -> str:
    """Return the URI of a file from the path that Spark reports.

    >>> file_uri("file:/tmp/a b.ttl"), file_uri("hdfs://host:8020/100%.ttl")
    ('file:///tmp/a%20b.ttl', 'hdfs://host:8020/100%25.ttl')
    """
    if (url := _URL.fullmatch(path)) is None:
        raise BadRequest(f"{path!r} is not the URL of a file.")
    return url[1] + (url[2] or "//") + quote_path(url[3])


def _check_example(option: str, given: str, example: str) -> None:
    try:
        check_registration_uri(example)
    except MdvError as error:
        raise BadCommand(f"{option} {given!r} cannot name a document: {error.detail}") from None
