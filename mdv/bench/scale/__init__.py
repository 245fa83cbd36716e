"""How costs grow with what is stored, and what that means at very large sizes."""
