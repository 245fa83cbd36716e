"""ReAL, the resource action language: parse, check and write programs, and the machine that runs them. No I/O."""
