"""Rules of LMRs and of the provider: add, change, remove, suspend and resume them."""
