"""The backbone: several MDPs that replicate all documents and converge. Nothing here does I/O.

`BackboneMember` is one MDP of a backbone. It receives messages and returns messages; a `ReplicaStore` keeps its state.
"""
