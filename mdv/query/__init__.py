"""Patterns compiled to SQL, alike for rules, for queries and, one day, for reactions. Tables come from outside."""
