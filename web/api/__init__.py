"""The API of an MDP, one file per resource type."""
