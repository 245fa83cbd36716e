"""All SQL: tables, named statements, one module per noun."""
