"""The metadata provider: documents in, changes out."""
