"""The rule's way: text → parsed → normalised → atomic rules → groups. No I/O here."""
