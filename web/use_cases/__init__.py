"""What pages and the API of an MDP both do. Handlers of either call these functions, and do not import each other."""
