"""The page of the backbone: map with lag, members, vectors, conflicts; pause and resume a member."""

from __future__ import annotations

import math
import time
from typing import Any

from flask import Response, request, url_for

from mdv.backbone.replica_store import MemberFacts
from mdv.mdp.backbone_members import pause_member
from mdv.replication.keys import fingerprint
from mdv.replication.link_status import ReplicationStatus
from web.pages.base import pages, redirect_to, render_page, require_unlimited_editor, require_viewer, session
from web.services import services
from web.use_cases.backbone import describe_backbone, find_facts, read_facts, read_replication

PAGE_SIZE = 50
MAP_WIDTH, MAP_HEIGHT, BOX_WIDTH, BOX_HEIGHT = 640, 300, 120, 44


@pages.get("/backbone")
def backbone() -> Response:
    """Show the backbone as this MDP sees it."""
    require_viewer()
    s = services()
    facts = find_facts(s)
    if facts is None:
        return render_page("backbone.html", backbone=None)
    after = request.args.get("after", "")
    with s.single.connect() as connection:
        conflicts, more = s.replica.conflict_page(connection, after, PAGE_SIZE)
    found = describe_backbone(s)
    return render_page(
        "backbone.html", backbone=found, map=draw_map(found), vectors=vector_matrix(facts, read_replication(s)),
        conflicts=conflicts, more=url_for("pages.backbone", after=more) if more else None, now=time.time(),
        may_change=may_change_members(), fingerprints=_fingerprints(facts),
    )  # fmt: skip


@pages.post("/backbone/members/<name>")
def pause_a_member(name: str) -> Response:
    """Pause or resume a member."""
    require_unlimited_editor()
    s = services()
    read_facts(s)
    with s.replica_lock:
        pause_member(s.replica, name, request.form.get("paused") == "true")
    s.notify_commit()
    return redirect_to("backbone")


def may_change_members() -> bool:
    """True if the user may change the backbone: an administrator without URI limits."""
    found = session()
    if found is None or found.role != "admin":
        return False
    return found.document_prefixes is None and found.resource_prefixes is None


def _fingerprints(facts: MemberFacts) -> dict[str, str]:
    return {name: fingerprint(member.key) for name, member in facts.table.members.items() if member.key}


def draw_map(found: dict[str, Any]) -> dict[str, Any]:
    """Return the boxes of the members in a circle, and the links of this MDP with what is missing at both ends."""
    members = found["members"]
    boxes = {}
    for number, member in enumerate(members):
        angle = 2 * math.pi * number / len(members) - math.pi / 2
        x = MAP_WIDTH / 2 + (MAP_WIDTH - BOX_WIDTH) / 2.2 * math.cos(angle)
        y = MAP_HEIGHT / 2 + (MAP_HEIGHT - BOX_HEIGHT) / 2.2 * math.sin(angle)
        boxes[member["name"]] = {
            "member": member,
            "x": round(x),
            "y": round(y),
            "is_self": member["name"] == found["name"],
        }
    own = boxes[found["name"]]
    links = [
        {"x1": own["x"], "y1": own["y"], "x2": box["x"], "y2": box["y"], "member": box["member"],
         "x": (own["x"] + box["x"]) // 2, "y": (own["y"] + box["y"]) // 2, "state": link_state(box["member"])}
        for name, box in boxes.items() if name != found["name"]
    ]  # fmt: skip
    return {"boxes": list(boxes.values()), "links": links, "width": MAP_WIDTH, "height": MAP_HEIGHT,
            "box_width": BOX_WIDTH, "box_height": BOX_HEIGHT}  # fmt: skip


def link_state(member: dict[str, Any]) -> str:
    if member["paused"]:
        return "paused"
    return "broken" if member["error"] else "behind" if member["lag"] else "current"


def vector_matrix(facts: MemberFacts, status: ReplicationStatus | None) -> dict[str, Any]:
    """Return the last operation of each life, as each member has reported it. The lives are named by their members."""
    lives = sorted(facts.vector, key=lambda life: (facts.table.owner_of(life) or "", life))
    rows = [(facts.name, dict(facts.vector))]
    for name in sorted(facts.table.members):
        member = facts.table.members[name]
        if name != facts.name and not member.is_removed:
            reports = [facts.reports[life] for life in member.current if life in facts.reports]
            rows.append((name, dict(reports[0]) if reports else {}))
    columns = [(facts.table.owner_of(life) or "?", life) for life in lives]
    most = {life: max(vector.get(life, 0) for _, vector in rows) for life in lives}
    cells = [(name, [(vector.get(life), most[life]) for life in lives], bool(vector)) for name, vector in rows]
    return {"columns": columns, "rows": cells}
