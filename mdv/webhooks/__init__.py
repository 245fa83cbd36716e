"""Webhooks: allowed addresses, signatures, and the HTTP request."""
