"""The web server: thin doors into mdv."""
