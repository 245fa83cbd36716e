"""Failpoints: places in a transaction where tests kill the process, to check that nothing is lost.

They do nothing unless `MDV_DIE_AT` is set. `MDV_DIE_AT="after the store:3"` kills the process when it reaches that
failpoint for the third time.
"""

from __future__ import annotations

import os
import signal

FAILPOINTS = (
    "after the claim",
    "after the gate",
    "after the store",
    "after the filter",
    "after the publication",
    "before the commit",
    "after the commit",
    "after the news",
)
"""In the order in which a registration passes them."""
AFTER_EDIT = "after an edit"
"""After each round of edits of a transaction. Registrations do not pass it."""
AFTER_REACTION = "after the reaction"
"""After the event-condition-action rules of a transaction have run."""
AFTER_UNDO = "after an undo"
"""After changes of a rule were undone, in its transaction or by a compensation."""
BEFORE_DETACHED = "before a detached job"
"""Before the transaction of a detached copy begins."""
ECA_FAILPOINTS = (AFTER_REACTION, AFTER_UNDO, BEFORE_DETACHED)

APPLIED, COMMITTED_OPERATIONS = "after operations were merged", "after the commit of operations"
REPLICA_FAILPOINTS = (APPLIED, "after the store", "after the filter", "after the publication", COMMITTED_OPERATIONS)
"""In the order in which a transaction that applies operations of other members passes them."""

ACTIVATED_LMR, ANNOUNCED_HOME = "after the rules of an adopted LMR", "after the operation of an adoption"
ADOPTED, STAGED_BUCKETS = "after the adoption of an LMR", "after the buckets of the new home"
ADOPTION_FAILPOINTS = (ACTIVATED_LMR, ANNOUNCED_HOME, ADOPTED, STAGED_BUCKETS)
"""In the order in which an adoption passes them: two in the new home, before its commit, and two in the LMR."""

BEGUN_SLICE, RUN_SLICE, LOCKED_SLICE = "after the claim of a slice", "after a slice", "after the lock of a slice"
CHANGED_SLICE, WAITING_SLICE, STORED_SLICE = "after the edits of a slice", "after its waits", "after its checkpoint"
COMMITTED_SLICE = "after the commit of a slice"
CLAIMED_CALL, ANSWERED_CALL = "after the claim of a request", "after the answer of a service"
SERVICE_FAILPOINTS = (CLAIMED_CALL, ANSWERED_CALL)
PROGRAM_FAILPOINTS = (
    BEGUN_SLICE, RUN_SLICE, LOCKED_SLICE, CHANGED_SLICE, WAITING_SLICE, STORED_SLICE, COMMITTED_SLICE
)  # fmt: skip
"""In the order in which a slice of a process passes them. A slice that changes nothing and does not wait takes no
lock."""

RECEIVED_EXCHANGE, HANDLED_MESSAGE, STEPPED_SITE = (
    "after messages were received", "after a message of a federation", "after the commit of a federation"
)  # fmt: skip
SENT_EXCHANGE = "before an exchange"
FEDERATION_FAILPOINTS = (SENT_EXCHANGE, RECEIVED_EXCHANGE, HANDLED_MESSAGE, STEPPED_SITE)
"""In the process of a federation: around a call, and around the transaction that handles messages."""

BACKUP_FAILPOINTS = ("before the manifest", "after a table")
"""In a backup, and in a restore. A restore also passes "before the commit"."""

_name, _, _times = os.environ.get("MDV_DIE_AT", "").rpartition(":")
_left = {_name: int(_times)} if _name else {}


def hit_failpoint(point: str) -> None:
    """Kill the process if `MDV_DIE_AT` names this failpoint and its count is reached."""
    if not _left or point not in _left:
        return
    _left[point] -= 1
    if _left[point] <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
