"""Document text in forms, shared by MDP and LMR pages."""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass

from mdv.errors import MdvError, UnsupportedMediaType
from mdv.rdf.syntax import JSON_LD, N_TRIPLES, RDF_XML, SYNTAXES, TURTLE, Syntax, syntax_of_name

MAX_TEXT_SHOWN_BYTES = 2 * 2**20
"""A larger text is not shown again with its errors: it came from a file, which has to be chosen again."""
DOWNLOAD_FORMATS = {
    "rdf": ("application/rdf+xml", "RDF/XML"),
    "ttl": ("text/turtle", "Turtle"),
    "jsonld": ("application/ld+json", "JSON-LD"),
    "nt": ("application/n-triples", "N-Triples"),
}
"""Download formats of a resource by file suffix: media type and label."""
assert {media_type for media_type, _ in DOWNLOAD_FORMATS.values()} <= {syntax.media_type for syntax in SYNTAXES}


@dataclass(frozen=True, slots=True)
class FormText:
    """The text of a form, pasted or from a file. `file`: the name of the file. `is_text`: `body` is UTF-8, whatever an
    XML declaration in it says; otherwise `body` are the bytes of a file that cannot be decoded."""

    body: bytes = b""
    syntax: str = ""
    file: str | None = None
    is_text: bool = True

    @property
    def media_type(self) -> str:
        """The media type of the text. Raises `UnsupportedMediaType` if it is not RDF."""
        refuse_other_formats(self.file, self.body)
        chosen = choose_syntax(self.syntax, self.file, self.body).media_type
        return f"{chosen}; charset=utf-8" if self.is_text else chosen

    @property
    def shown(self) -> str:
        """The text that the form shows again; none if it is too large or cannot be decoded. Then the file has to be
        chosen again."""
        if not self.is_text or len(self.body) > MAX_TEXT_SHOWN_BYTES:
            return ""
        return self.body.decode("utf-8", "replace").replace("\0", "\ufffd")


EMPTY_TEXT = FormText()


def pasted_text(text: str, syntax: str) -> FormText:
    """Return the text of a form field, with LF line ends instead of the CRLF that browsers send."""
    return FormText(text.replace("\r\n", "\n").encode("utf-8", "replace"), syntax)


def file_text(body: bytes, syntax: str, file: str) -> FormText:
    """Return the text of a file in UTF-8, if it can be decoded.

    >>> file_text("<?xml version='1.0' encoding='ISO-8859-1'?><é/>".encode("latin-1"), "", "a.rdf").shown
    "<?xml version='1.0' encoding='ISO-8859-1'?><é/>"
    >>> file_text(b"\\xff", "", "a.ttl").is_text
    False
    """
    try:
        text = body.decode(_encoding_of(body))
    except (UnicodeError, LookupError):
        text = "\0"
    if "\0" in text:
        return FormText(body, syntax, file, is_text=False)
    return FormText(text.removeprefix("\ufeff").encode(), choose_syntax(syntax, file, body).name, file)


TEXT_ENCODINGS = {
    "ascii", "utf-8", "utf-16", "koi8-r", "koi8-u", "mac-roman", "shift_jis", "euc_jp", "iso2022_jp", "gb2312", "gbk",
    "gb18030", "big5", "euc_kr", *(f"iso8859-{number}" for number in range(1, 17)), *(f"cp125{n}" for n in range(9)),
}  # fmt: skip
"""Encodings of texts, by the names of Python's codecs. Other codecs of Python may be slow or decode no text."""

_DECLARED = re.compile(rb"<\?xml[^>]*?\sencoding\s*=\s*[\"']([A-Za-z0-9._:-]+)[\"']")


def _encoding_of(body: bytes) -> str:
    """Return the encoding of a file: that of its byte order mark, else that of its XML declaration, else UTF-8."""
    if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    declared = None if body.startswith(codecs.BOM_UTF8) else _DECLARED.match(body[:1000])
    name = codecs.lookup(declared[1].decode()).name if declared else "utf-8"
    if name not in TEXT_ENCODINGS:
        raise LookupError(name)
    return name


def choose_syntax(name: str, file: str | None, text: bytes) -> Syntax:
    """Return the syntax of a text: the chosen one, else the one of the file suffix, else the one that it looks like.

    A text that is RDF/XML or JSON for certain is read as such, even if Turtle is chosen.
    """
    chosen = _named_syntax(name) or (_named_syntax(file) if file is not None else None)
    guessed = guess_syntax(text)
    if chosen is None or (chosen in (TURTLE, N_TRIPLES) and (guessed is RDF_XML or _json_keys(text) is not None)):
        return guessed
    return chosen


def _named_syntax(name: str) -> Syntax | None:
    try:
        return syntax_of_name(name) if name else None
    except MdvError:
        return None


def guess_syntax(text: bytes) -> Syntax:
    """Guess the syntax of a text.

    >>> texts = (b"<?xml version='1.0'?>", b" <rdf:RDF", b'[{"@id": 1}]', b"<a> <b> 'c' .")
    >>> [guess_syntax(text).label for text in texts]
    ['RDF/XML', 'RDF/XML', 'JSON-LD', 'Turtle']
    """
    start = text[:2000].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith((b"<?xml", b"<!--", b"<!DOCTYPE", b"<rdf:RDF")) or re.match(rb"<[\w.:-]+\s[^>]*xmlns", start):
        return RDF_XML
    return JSON_LD if start.startswith((b"{", b"[")) and b'"@' in start else TURTLE


SIGNATURES = {
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF8": "a GIF image",
    b"%PDF": "a PDF document",
    b"PK\x03\x04": "a ZIP archive or an office document",
    b"\x1f\x8b": "a gzip file",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ": "an xz file",
    b"\x28\xb5\x2f\xfd": "a Zstandard file",
    b"SQLite format 3": "an SQLite database",
    b"PAR1": "a Parquet file",
}
"""The first bytes of files that are not RDF."""
TABLE_SUFFIXES = (".csv", ".tsv", ".xls", ".xlsx", ".ods")


def refuse_other_formats(file: str | None, body: bytes) -> None:
    """Raise `UnsupportedMediaType`, with the format that it seems to be, if a text or file is certainly not RDF."""
    what = _other_format(file or "", body)
    if what is None:
        return
    hint = " `mdv batch` reads archives and compressed files." if "file" in what or "archive" in what else ""
    raise UnsupportedMediaType(
        f"{file or 'The text'} seems to be {what}. MDV reads RDF: {', '.join(one.label for one in SYNTAXES)}.{hint}"
    )


def _other_format(file: str, body: bytes) -> str | None:
    for signature, what in SIGNATURES.items():
        if body.startswith(signature):
            return what
    start = body[:2000].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if b"\0" in start and not body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "a binary file" if _named_syntax(file) is None else None  # the gate refuses NUL in RDF
    if start.startswith((b"<!doctype html", b"<html")):
        return "an HTML page"
    keys = _json_keys(body)
    if keys is not None and not any(key.startswith("@") for key in keys):
        return "JSON, but not JSON-LD: it has no keys such as @context, @id or @type"
    return "a table" if file.lower().endswith(TABLE_SUFFIXES) else None


MAX_JSON_INSPECTED_BYTES = 2**20


def _json_keys(text: bytes) -> set[str] | None:
    """Return all keys of a JSON object or list; None if the text is no JSON, or too large to be inspected."""
    if text[:2000].lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"[") or len(text) > MAX_JSON_INSPECTED_BYTES:
        return None
    keys: set[str] = set()
    try:
        found = json.loads(text, object_pairs_hook=lambda pairs: keys.update(key for key, _ in pairs))
    except (ValueError, RecursionError):
        return None
    return keys if found != [] else None
