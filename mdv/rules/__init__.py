"""The stages of a rule: text → parsed → normalised → atomic rules → groups. No I/O."""
