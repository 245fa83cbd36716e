"""Sets whose replicas converge: how the state of one statement of a document changes.

A set kind has a state for each statement. `insert` and `delete` are executed where the change is made, and return what
to send; `remote_insert` and `remote_delete` execute it elsewhere. There are two kinds: `cset.py` and `orset.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from mdv.backbone.vector import Dot, Vector

ElementState = Any
"""The state of one statement: a counter, or a set of dots. The value is immutable."""


class SetKind(ABC):
    """A kind of replicated set. `absent`: the state of a statement that was never inserted."""

    name: str
    absent: ElementState
    is_causal: bool
    """True if operations must be applied in causal order."""

    @abstractmethod
    def insert(self, state: ElementState, dot: Dot) -> tuple[ElementState, int]:
        """Insert a statement here. Return its state, and the number to be sent; 0 if there is nothing to send."""

    @abstractmethod
    def delete(self, state: ElementState) -> tuple[ElementState, int]:
        """Delete a statement here. Return the same."""

    @abstractmethod
    def remote_insert(self, state: ElementState, number: int, dot: Dot) -> ElementState:
        """Execute an insertion of another member. `dot`: its operation."""

    @abstractmethod
    def remote_delete(self, state: ElementState, number: int, deps: Vector) -> ElementState:
        """Execute a deletion of another member. `deps`: what that member had applied."""

    @abstractmethod
    def is_visible(self, state: ElementState) -> bool:
        """True if a statement with this state is in the set."""

    @abstractmethod
    def count(self, state: ElementState) -> int:
        """Return the counter of a statement, or the number of its dots."""

    @abstractmethod
    def mark(self, state: ElementState, row: Dot | None) -> ElementState | None:
        """Return the state if it must be stored; None if it follows from the row of the statement.

        `row`: the operation that wrote the row; None if the statement has no row.
        """

    @abstractmethod
    def state_of_row(self, row: Dot | None) -> ElementState:
        """Return the state of a statement without a mark."""

    @abstractmethod
    def is_live(self, state: ElementState, row: Dot) -> bool:
        """False if the row of a visible statement must be written again, because its operation is no longer live."""

    @abstractmethod
    def is_settled(self, state: ElementState, row: Dot | None, stable: Vector) -> bool:
        """True if a mark can be removed because all its operations are stable, and also the one of the row."""

    @abstractmethod
    def to_json(self, state: ElementState) -> Any:
        """Return a state as JSON."""

    @abstractmethod
    def from_json(self, value: Any) -> ElementState:
        """Return the state of a JSON value."""
