"""Messages between members as JSON.

    {"messages": [{"type": "poll", "sender", "life", "vector", …}, …]}

Bytes are base64. What a peer sends is not trusted: a message that is not as described is refused as a whole.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mdv.backbone.document_state import RecentOperation, ReplicatedDocument
from mdv.backbone.membership import MemberLives, MemberTable
from mdv.backbone.messages import (
    BackboneMessage,
    ClosePromise,
    ClosePromised,
    JoinRequest,
    LifeSeen,
    LogPage,
    LogPoll,
    StateAnswer,
    StateNeeded,
    StateRequest,
    TransferredDocument,
)
from mdv.backbone.operation import LogRow
from mdv.backbone.registers import Register
from mdv.backbone.replicated_set import SetKind
from mdv.errors import BadRequest
from mdv.model import Statement, Term

Json = dict[str, Any]

MAX_NUMBER = 2**63


def encode_messages(messages: Iterable[BackboneMessage], kind: SetKind, table: MemberTable | None = None) -> bytes:
    """Return messages as JSON. `table`: the members, for one that joins and must ask all of them."""
    found = [{"type": _TYPES[type(message)][0], **_TYPES[type(message)][1](message, kind)} for message in messages]
    body: Json = {"messages": found}
    if table is not None:
        body["members"] = {name: [one.url, one.key] for name, one in table.members.items() if not one.is_removed}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def decode_contacts(body: bytes) -> dict[str, tuple[str, str]]:
    """Return the URLs and the public keys of the members in a body, by name."""
    try:
        members = json.loads(body).get("members", {})
        return {_text(name): (_text(url), _text(key)) for name, (url, key) in members.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise BadRequest(f"The members are malformed: {error}.") from None


def decode_messages(body: bytes, kind: SetKind) -> list[BackboneMessage]:
    """Return the messages in a body. Raise `BadRequest` if one of them is malformed.

    >>> from mdv.backbone.orset import AddWinsSet
    >>> seen = LifeSeen("m1", "a", "b", {"a": 3})
    >>> decode_messages(encode_messages([seen], AddWinsSet()), AddWinsSet()) == [seen]
    True
    """
    try:
        return [_READERS[item["type"]](item, kind) for item in json.loads(body)["messages"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error) as error:
        raise BadRequest(f"The messages are malformed ({type(error).__name__}: {error}).") from None


# Values


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is expected")
    return value


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -MAX_NUMBER < value < MAX_NUMBER:
        raise TypeError("a number is expected")
    return value


def _vector(value: Any) -> dict[str, int]:
    return {_text(life): _number(seq) for life, seq in value.items()}


def _reports(value: Any) -> dict[str, dict[str, int]]:
    return {_text(life): _vector(vector) for life, vector in value.items()}


def _lives(value: Any) -> frozenset[str]:
    return frozenset(_text(life) for life in value)


def _sums(value: Any) -> dict[int, int]:
    return {int(bucket): int(number) for bucket, number in value.items()}


def _optional(value: Any) -> str | None:
    return None if value is None else _text(value)


def _bytes(value: Any) -> bytes:
    return base64.b64decode(_text(value), validate=True)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _plain(reports: Mapping[str, Mapping[str, int]]) -> Json:
    return {life: dict(vector) for life, vector in reports.items()}


# Rows of the log


def encode_row(row: LogRow) -> list[Any]:
    return [row.life, row.seq, _base64(row.chain), _base64(row.body), _base64(row.signature)]


def decode_row(value: Any) -> LogRow:
    life, seq, chain, body, signature = value
    return LogRow(_text(life), _number(seq), _bytes(chain), _bytes(body), _bytes(signature))


# Documents


def document_fields(one: TransferredDocument, kind: SetKind) -> Json:
    """Return a document with the states of its statements as JSON."""
    document = one.document
    return {
        "uri": one.uri,
        "version": document.version,
        "digest": document.digest,
        "statements": document.statements,
        "prefixes": dict(document.prefixes),
        "prefixes_by": list(document.prefixes_by),
        "last": list(document.last),
        "recent": [[*recent.dot, recent.at, recent.is_deletion] for recent in document.recent],
        "merges": dict(document.merges),
        "merged_at": document.merged_at,
        "remnants": [[list(dot) for dot in pair] for pair in sorted(document.remnants)],
        "states": [
            [statement.subject, statement.property, statement.object.as_dict(), kind.to_json(state)]
            for statement, state in one.states.items()
        ],
    }


def decode_document(item: Json, kind: SetKind) -> TransferredDocument:
    """Return a document of `document_fields`."""
    document = ReplicatedDocument(
        _number(item["version"]),
        int(item["digest"]),
        _number(item["statements"]),
        {_text(prefix): _text(name) for prefix, name in item["prefixes"].items()},
        (_number(item["prefixes_by"][0]), _text(item["prefixes_by"][1])),
        _dot(item["last"]),
        tuple([RecentOperation((_text(life), _number(seq)), _number(at), bool(gone))
               for life, seq, at, gone in item["recent"]]),
        _vector(item["merges"]),
        _number(item["merged_at"]),
        frozenset((_dot(first), _dot(second)) for first, second in item["remnants"]),
    )  # fmt: skip
    states = {
        Statement(_text(subject), _text(name), _term(term)): kind.from_json(state)
        for subject, name, term, state in item["states"]
    }
    return TransferredDocument(_text(item["uri"]), document, states)


def _dot(value: Sequence[Any]) -> tuple[str, int]:
    life, seq = value
    return _text(life), _number(seq)


def _term(value: Json) -> Term:
    kind, text = _text(value["type"]), _text(value["value"])
    return Term(kind, text, _optional(value.get("lang")), _optional(value.get("datatype")))


def _write_table(table: MemberTable) -> Json:
    members = {
        name: {"begun": sorted(one.begun), "ended": sorted(one.ended), "removed": one.is_removed, "url": one.url,
               "key": one.key}
        for name, one in table.members.items()
    }  # fmt: skip
    return {
        "members": members,
        "closed": dict(table.closed),
        "closings": dict(table.closings),
        "lead": list(table.lead),
        "schema": list(table.schema),
        "schema_text": table.schema_text,
        "backbone_id": table.backbone_id,
        "schema_by": table.schema_by,
    }


def _read_table(item: Json) -> MemberTable:
    members = {_text(name): _read_lives(one) for name, one in item["members"].items()}
    term, number, lead = item["lead"]
    schema_term, schema_number = item["schema"]
    return MemberTable(
        members, _vector(item["closed"]), _vector(item["closings"]), (_number(term), _number(number), _text(lead)),
        (_number(schema_term), _number(schema_number)), _optional(item["schema_text"]),
        _text(item["backbone_id"]), _text(item["schema_by"]),
    )  # fmt: skip


def _read_lives(item: Json) -> MemberLives:
    begun, ended = set(_lives(item["begun"])), set(_lives(item["ended"]))
    return MemberLives(begun, ended, bool(item["removed"]), _text(item["url"]), _text(item["key"]))


# Messages


def _write_poll(poll: LogPoll, _: SetKind) -> Json:
    return {"sender": poll.sender, "life": poll.life, "vector": dict(poll.vector), "reports": _plain(poll.reports),
            "have": dict(poll.have), "of": poll.of, "promised": sorted(poll.promised)}  # fmt: skip


def _read_poll(item: Json, _: SetKind) -> LogPoll:
    return LogPoll(
        _text(item["sender"]), _text(item["life"]), _vector(item["vector"]), _reports(item["reports"]),
        _vector(item["have"]), _optional(item["of"]), _lives(item["promised"]),
    )  # fmt: skip


def _write_page(page: LogPage, _: SetKind) -> Json:
    return {"sender": page.sender, "life": page.life, "vector": dict(page.vector), "reports": _plain(page.reports),
            "offered": dict(page.offered), "rows": [encode_row(row) for row in page.rows], "of": page.of,
            "asked_by": page.asked_by, "yours": [page.yours[0], _base64(page.yours[1])],
            "is_ended": page.is_ended}  # fmt: skip


def _read_page(item: Json, _: SetKind) -> LogPage:
    seq, chain = item["yours"]
    return LogPage(
        _text(item["sender"]), _text(item["life"]), _vector(item["vector"]), _reports(item["reports"]),
        _vector(item["offered"]), tuple([decode_row(row) for row in item["rows"]]), _optional(item["of"]),
        _text(item["asked_by"]), (_number(seq), _bytes(chain)), bool(item["is_ended"]),
    )  # fmt: skip


def _write_state_needed(needed: StateNeeded, _: SetKind) -> Json:
    return {"sender": needed.sender, "closed": dict(needed.closed)}


def _read_state_needed(item: Json, _: SetKind) -> StateNeeded:
    return StateNeeded(_text(item["sender"]), _vector(item["closed"]))


def _write_state_request(request: StateRequest, _: SetKind) -> Json:
    return {"sender": request.sender, "life": request.life, "vector": dict(request.vector),
            "reports": _plain(request.reports), "sums": dict(request.sums)}  # fmt: skip


def _read_state_request(item: Json, _: SetKind) -> StateRequest:
    return StateRequest(_text(item["sender"]), _text(item["life"]), _vector(item["vector"]), _reports(item["reports"]),
                        _sums(item["sums"]))  # fmt: skip


def _write_state(state: StateAnswer, kind: SetKind) -> Json:
    return {
        "sender": state.sender, "life": state.life, "vector": dict(state.vector), "reports": _plain(state.reports),
        "chains": {life: _base64(chain) for life, chain in state.chains.items()}, "table": _write_table(state.table),
        "stable": dict(state.stable), "promised": dict(state.promised), "buckets": sorted(state.buckets),
        "documents": [document_fields(document, kind) for document in state.documents], "asked_by": state.asked_by,
        "registers": {key: list(one) for key, one in state.registers.items()},
        "lmrs": {key: list(one) for key, one in state.lmrs.items()},
    }  # fmt: skip


def _read_state(item: Json, kind: SetKind) -> StateAnswer:
    return StateAnswer(
        _text(item["sender"]), _text(item["life"]), _vector(item["vector"]), _reports(item["reports"]),
        {_text(life): _bytes(chain) for life, chain in item["chains"].items()}, _read_table(item["table"]),
        _vector(item["stable"]), _vector(item["promised"]), frozenset(_number(bucket) for bucket in item["buckets"]),
        tuple([decode_document(document, kind) for document in item["documents"]]), _text(item["asked_by"]),
        _read_registers(item["registers"]), _read_registers(item["lmrs"]),
    )  # fmt: skip


def _read_registers(value: Any) -> dict[str, Register]:
    return {_text(key): Register(_number(at), _text(life), one) for key, (at, life, one) in value.items()}


def _write_life_seen(seen: LifeSeen, _: SetKind) -> Json:
    return {"sender": seen.sender, "by": seen.by, "life": seen.life, "vector": dict(seen.vector)}


def _read_life_seen(item: Json, _: SetKind) -> LifeSeen:
    return LifeSeen(_text(item["sender"]), _text(item["by"]), _text(item["life"]), _vector(item["vector"]))


def _write_promise(promise: ClosePromise, _: SetKind) -> Json:
    return {"sender": promise.sender, "lives": sorted(promise.lives)}


def _read_promise(item: Json, _: SetKind) -> ClosePromise:
    return ClosePromise(_text(item["sender"]), _lives(item["lives"]))


def _write_promised(promised: ClosePromised, _: SetKind) -> Json:
    return {"sender": promised.sender, "active": sorted(promised.active), "counts": dict(promised.counts)}


def _read_promised(item: Json, _: SetKind) -> ClosePromised:
    return ClosePromised(_text(item["sender"]), _lives(item["active"]), _vector(item["counts"]))


def _write_join(join: JoinRequest, _: SetKind) -> Json:
    return {"sender": join.sender, "life": join.life, "code": join.code, "url": join.url, "key": join.key}


def _read_join(item: Json, _: SetKind) -> JoinRequest:
    return JoinRequest(*(_text(item[name]) for name in ("sender", "life", "code", "url", "key")))


_TYPES: dict[type[BackboneMessage], tuple[str, Callable[[Any, SetKind], Json]]] = {
    LogPoll: ("poll", _write_poll),
    LogPage: ("page", _write_page),
    StateNeeded: ("state-needed", _write_state_needed),
    StateRequest: ("state-request", _write_state_request),
    StateAnswer: ("state", _write_state),
    LifeSeen: ("life-seen", _write_life_seen),
    ClosePromise: ("close-promise", _write_promise),
    ClosePromised: ("close-promised", _write_promised),
    JoinRequest: ("join", _write_join),
}
_READERS: dict[str, Callable[[Json, SetKind], BackboneMessage]] = {
    "poll": _read_poll,
    "page": _read_page,
    "state-needed": _read_state_needed,
    "state-request": _read_state_request,
    "state": _read_state,
    "life-seen": _read_life_seen,
    "close-promise": _read_promise,
    "close-promised": _read_promised,
    "join": _read_join,
}
