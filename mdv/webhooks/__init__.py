"""Webhooks: addresses that may be sent to, signatures, and one exchange over HTTP."""
