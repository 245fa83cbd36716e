"""The paper's workload (section 4): documents of two resources, a CycleProvider and its ServerInformation."""

from __future__ import annotations

from pathlib import Path

import mdv

NAMESPACE = "http://mdv.example/schema#"

SCHEMA = (Path(mdv.__file__).parent / "demo" / "schema.ttl").read_bytes()


def document_uri(number: int) -> str:
    return f"http://mdv.example/bench/{number}.rdf"


def provider_uri(number: int) -> str:
    """Return the URI of the CycleProvider in a document."""
    return f"{document_uri(number)}#host"


def server_host(host: int) -> str:
    return f"host{host}.uni-passau.de"


def make_document(
    number: int, host: int | None = None, synth: int | None = None, memory: int | None = None
) -> tuple[str, bytes]:
    """Return the URI and the text of a document. Values that are not given are equal to its number."""
    text = f"""<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="{NAMESPACE}">
  <CycleProvider rdf:ID="host">
    <serverHost>{server_host(number if host is None else host)}</serverHost>
    <serverPort>5874</serverPort>
    <synthValue>{number if synth is None else synth}</synthValue>
    <serverInformation>
      <ServerInformation rdf:ID="info" memory="{number if memory is None else memory}" cpu="600"/>
    </serverInformation>
  </CycleProvider>
</rdf:RDF>
"""
    return document_uri(number), text.encode()
