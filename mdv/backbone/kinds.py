"""The kinds of replicated sets by name."""

from __future__ import annotations

from mdv.backbone.cset import CSet
from mdv.backbone.orset import AddWinsSet
from mdv.backbone.replicated_set import SetKind

SET_KINDS: dict[str, SetKind] = {kind.name: kind for kind in (AddWinsSet(), CSet())}
"""`orset`, the default, and `cset`."""
