"""Pages: what people see of an MDP in a browser."""
