"""How costs grow with the size of the system, and an extrapolation to very large sizes."""
