"""RDF processing: text to validated statements with named blank nodes. No I/O."""
