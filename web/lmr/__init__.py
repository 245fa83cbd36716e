"""The web server of an LMR. It answers from the cache; a thread keeps the cache up to date."""
