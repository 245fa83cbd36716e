"""A federation: superpeers and peers with fragments of their own, and rules of RDFTL that concern several of them.

No I/O: messages come in, messages go out. `docs/architecture/federation.md` describes it.
"""
