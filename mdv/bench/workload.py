"""The paper's workload (section 4): documents of two resources, a CycleProvider and its ServerInformation."""

from __future__ import annotations

from pathlib import Path

import mdv

NAMESPACE = "http://mdv.example/schema#"

SCHEMA = (Path(mdv.__file__).parent / "demo" / "schema.ttl").read_bytes()


def rdf_xml(number: int) -> tuple[str, bytes]:
    """The URI and the text of the document of that number."""
    text = f"""<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="{NAMESPACE}">
  <CycleProvider rdf:ID="host">
    <serverHost>host{number}.uni-passau.de</serverHost>
    <serverPort>5874</serverPort>
    <synthValue>{number}</synthValue>
    <serverInformation>
      <ServerInformation rdf:ID="info" memory="{number}" cpu="600"/>
    </serverInformation>
  </CycleProvider>
</rdf:RDF>
"""
    return f"http://mdv.example/bench/{number}.rdf", text.encode()
