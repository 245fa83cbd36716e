"""The local metadata repository: a cache of what its rules select, and of what that strongly references."""
