"""Back up and restore an MDP: all tables at one position, and the local metadata of its own LMR."""
