"""Database access: tables, named SQL statements, and one module for each kind of stored data."""
