"""Forms over the size limit. The page names the limit and shows its form again, with the fields before the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flask import Response, request
from werkzeug.datastructures import MultiDict
from werkzeug.sansio.multipart import Data, Epilogue, Field, MultipartDecoder, NeedData

from mdv.errors import TooLarge
from web.template_filters import size

CHUNK_BYTES = 64 * 1024
MAX_DISCARDED_FACTOR = 8
"""The rest of a form is read and discarded if it is at most this many times the limit: many browsers read no answer
before they have sent the whole form."""


class FormTooLarge(TooLarge):
    """The form is larger than the limit. `fields`: the fields that are known."""

    def __init__(self, detail: str, fields: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.fields: Mapping[str, str] = fields or {}


Renderer = Callable[[FormTooLarge], Response]
_renderers: dict[str, Renderer] = {}


def keep_form(endpoint: str) -> Callable[[Renderer], Renderer]:
    """Register the function that renders the form of a page again if the form that was sent is too large."""

    def register(renderer: Renderer) -> Renderer:
        _renderers[f"pages.{endpoint}"] = renderer
        return renderer

    return register


def renderer_of_form(endpoint: str | None) -> Renderer | None:
    return _renderers.get(endpoint or "")


def short_size(number: int) -> str:
    """Format a number of bytes, without zeros after the decimal point.

    >>> short_size(32 * 2**20), short_size(1_500_000)
    ('32 MiB', '1.4 MiB')
    """
    return size(number).replace(".0 ", " ")


def describe_limit(limit: int) -> str:
    """Return a limit in words.

    >>> describe_limit(32 * 2**20)
    '32 MiB (33,554,432 bytes)'
    """
    return f"{short_size(limit)} ({limit:,} bytes)"


def refuse_oversized_form(max_start_bytes: int) -> FormTooLarge:
    """Return the error for the form of this request. Fields are read from its first `max_start_bytes` bytes."""
    limit, length = request.max_content_length or 0, request.content_length or 0
    if length <= limit:
        most = describe_limit(request.max_form_memory_size or 0)
        return FormTooLarge(
            f"The form has more than {request.max_form_parts} fields and files, or a text larger than {most}. Nothing"
            " was changed. Send a large text as a file."
        )
    fields = _read_start(length, max_start_bytes if length <= limit * MAX_DISCARDED_FACTOR else 0)
    return FormTooLarge(
        f"The form has {short_size(length)}. The limit is {describe_limit(limit)}. Nothing was changed.", fields
    )


def _read_start(length: int, max_start_bytes: int) -> dict[str, str]:
    """Return the fields at the start of a multipart form, and discard the rest of the form."""
    if not max_start_bytes:
        return {}
    stream, read, start = request.environ["wsgi.input"], 0, bytearray()
    try:
        while read < length and (part := stream.read(min(CHUNK_BYTES, length - read))):
            read += len(part)
            start += part[: max(0, max_start_bytes - len(start))]
    except (OSError, TooLarge):
        return {}
    boundary = request.mimetype_params.get("boundary", "")
    return parse_fields(bytes(start), boundary.encode("ascii", "replace")) if boundary else {}


def parse_fields(start: bytes, boundary: bytes) -> dict[str, str]:
    """Return the complete text fields in the first bytes of a multipart form.

    >>> form = b'--x\\r\\nContent-Disposition: form-data; name="a"\\r\\n\\r\\none\\r\\n--x\\r\\nContent-Disposition: fo'
    >>> parse_fields(form, b"x")
    {'a': 'one'}
    """
    decoder = MultipartDecoder(boundary)
    fields: MultiDict[str, str] = MultiDict()
    name, value = "", bytearray()
    try:
        decoder.receive_data(start)
        while not isinstance(event := decoder.next_event(), NeedData | Epilogue):
            if isinstance(event, Data):
                value += event.data
                if name and not event.more_data:
                    fields.add(name, value.decode("utf-8", "replace").replace("\0", "\ufffd"))
            else:
                name, value = (event.name if isinstance(event, Field) else ""), bytearray()
    except ValueError:  # not a multipart form
        return {}
    return fields.to_dict()
