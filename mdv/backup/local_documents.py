"""The local documents of an LMR, read and written over HTTP."""

from __future__ import annotations

from typing import NamedTuple

from mdv.client import Client
from mdv.rdf.syntax import TURTLE


class LocalDocumentText(NamedTuple):
    """A document that is registered at an LMR, as Turtle."""

    uri: str
    text: str


def read_local_documents(lmr: Client) -> list[LocalDocumentText]:
    """Return all local documents of an LMR."""
    return [
        LocalDocumentText(item["uri"], lmr.rdf("/local/documents", TURTLE.media_type, uri=item["uri"]).decode())
        for item in lmr.items("/local/documents")
    ]


def replace_local_documents(lmr: Client, documents: list[LocalDocumentText]) -> None:
    """Make these the only local documents of an LMR."""
    kept = {document.uri for document in documents}
    for uri in [item["uri"] for item in lmr.items("/local/documents") if item["uri"] not in kept]:
        lmr.request("DELETE", "/local/documents", params={"uri": uri})
    headers = {"Content-Type": TURTLE.media_type}
    for document in documents:
        lmr.request(
            "PUT", "/local/documents", params={"uri": document.uri}, content=document.text.encode(), headers=headers
        )
