"""The pages of an LMR. They read from the cache, except for subscriptions, which are stored at the MDP."""
