"""The abstract machine that runs programs: lazy streams by backtracking, with checkpoints at every step.

A machine has a success continuation (a linked list of frames) and a stack of choices. A step evaluates a node, passes a
solution on to the next frame, or takes the last choice. `checkpoint.py` lists the fields of frames and choices.

- Transactions, sandboxes and contexts are part of the state that a frame or choice restores, so a stream can be left
  and entered again at any time.
- A choice whose alternatives are used up is removed at once. A loop whose choices end therefore keeps its size.
- Everything is read through a `StoreView`. Effects are collected in overlays until the host takes them.
"""

from __future__ import annotations

import mdv.real.evaluate  # the steps of the machine
import mdv.real.resume  # noqa: F401
from mdv.real.compile_code import CodeNode
from mdv.real.events import MachineEvent, ProgramEnded, ProgramFailed, StepsUsed
from mdv.real.machine_state import CHOICE_STEPS, EVALUATE_STEPS, NO_VIEW, MachineState, ProgramFault, Segment
from mdv.real.store import StoreView


class Machine(MachineState):
    """A running program. `run` returns at the next event; everything else is state."""

    def run(self, view: StoreView, steps: int) -> MachineEvent:
        """Run for up to `steps` steps and return the event that ended the run."""
        if self.ended is not None:
            return self.ended
        self.view = view
        limits = self.settings.limits
        left = min(steps, limits.steps - self.steps)
        begun = left
        steps_of = EVALUATE_STEPS
        node: CodeNode | None = None
        try:
            while left > 0:
                left -= 1
                node = self.node
                if node is not None:
                    steps_of[node.op](self, node)
                else:
                    self._backtrack()
                if self.event is not None:
                    return self._take_event()
        except ProgramFault as fault:
            where = self.node or node
            self.ended = ProgramFailed(
                fault.message, where.span if where else None, where.code.text if where else "", fault.limit
            )
            return self.ended
        finally:
            self.steps += begun - left
            self.view = NO_VIEW
        if self.steps >= limits.steps:
            self.ended = ProgramFailed(f"the program took {limits.steps:,} steps, which is the limit", limit="steps")
            return self.ended
        return StepsUsed()

    def _take_event(self) -> MachineEvent:
        event, self.event = self.event, None
        assert event is not None
        if isinstance(event, ProgramEnded):
            self.ended = event
        return event

    def _backtrack(self) -> None:
        stack = self.stack
        if not stack:
            self.event = ProgramEnded()
            return
        choice = stack[-1]
        if self.segment is None and (outermost := self.overlays[choice[3]].outermost):
            self.segment = Segment(outermost, self.saved_state())
        CHOICE_STEPS[choice[0]](self, choice)
