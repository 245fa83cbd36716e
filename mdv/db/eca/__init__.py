"""Event-condition-action rules in the database: their rows, and their paths and conditions as SQL."""
