"""The local metadata repository (LMR): a cache of selected resources and the targets of their strong references."""
