"""The pages of an MDP."""
