"""The web servers of MDPs and LMRs: HTTP API and pages."""
