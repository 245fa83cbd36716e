"""Read-only views of an MDP and of the caches of LMRs: list, explain, replay the filter, draw, propose, browse and
query."""
