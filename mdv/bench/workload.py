"""The paper's workload (section 4): documents of two resources, a CycleProvider and its ServerInformation."""

from __future__ import annotations

NAMESPACE = "http://mdv.example/schema#"

SCHEMA = f"""
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
@prefix mdv: <urn:mdv:schema#> .
@prefix : <{NAMESPACE}> .
:CycleProvider a rdfs:Class .
:ServerInformation a rdfs:Class .
:serverHost rdfs:domain :CycleProvider ; rdfs:range xsd:string .
:serverPort rdfs:domain :CycleProvider ; rdfs:range xsd:integer .
:synthValue rdfs:domain :CycleProvider ; rdfs:range xsd:integer .
:serverInformation rdfs:domain :CycleProvider ; rdfs:range :ServerInformation ; mdv:reference mdv:strong .
:memory rdfs:domain :ServerInformation ; rdfs:range xsd:integer .
:cpu rdfs:domain :ServerInformation ; rdfs:range xsd:integer .
"""


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
