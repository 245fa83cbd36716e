"""The store of a federation: what this MDP is in it, links, messages, records, and reads of the fragment."""
