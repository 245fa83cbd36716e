"""The metadata provider (MDP): runs jobs that register documents and change rules, filters, and publishes to LMRs."""
