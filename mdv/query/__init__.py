"""Patterns compiled to SQL: the same for rules, for queries and, one day, for reactions. The tables come from outside."""
