"""Who may do what: the callers of the API with their tokens, and web sessions of users."""
