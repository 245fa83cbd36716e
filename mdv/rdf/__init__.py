"""RDF: from text to validated, named statements, without I/O."""
