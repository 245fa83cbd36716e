"""The web server of an LMR: reads from its cache alone, and keeps the cache current in a thread of its own."""
