"""The pages of an LMR: what they show is read from its cache, but for its subscriptions, which the MDP keeps."""
