"""Follow a feed of MDV: a dict that is always what an LMR's rules select, and what that strongly references.

    MDV_URL=http://127.0.0.1:8080 MDV_LMR_TOKEN=… python follow.py

It needs httpx2 and nothing else of MDV.
"""

import os
from typing import Any

import httpx2

MDV, SUB = "urn:mdv:schema#", "http://www.w3.org/2000/01/rdf-schema#subPropertyOf"


class Copy:
    """The resources received so far with their statements, and which of them are selected."""

    def __init__(self) -> None:
        self.cursor: str | None = None
        self.resources: dict[str, list[Any]] = {}
        self.selected: set[str] = set()
        self.strong: set[str] = set()
        self.begun: list[dict[str, Any]] = []

    def apply(self, page: dict[str, Any]) -> None:
        """Apply the whole transactions of a page; the beginning of another one waits for its end."""
        for event in page["events"]:
            self.begun.append(event)
            if event.get("last"):
                if page.get("snapshot"):  # this is all there is
                    self.resources, self.selected = {}, set()
                for each in self.begun:
                    self.tell(each)
                self.begun = []
                self.collect()
        self.cursor = page["cursor"]

    def tell(self, event: dict[str, Any]) -> None:
        kind, resource = event["event"], event.get("resource", "")
        if kind == "schema":
            self.strong = strong_properties(event["schema"]["statements"])
        elif kind == "put":
            before = self.resources.get(resource, []) if event.get("from") else []  # a large resource has several puts
            self.resources[resource] = before + event["statements"]
        elif kind == "match":
            self.selected.add(resource)
        elif kind in ("unmatch", "delete"):  # a delete says both; suspended and resumed change nothing here
            self.selected.discard(resource)
            if kind == "delete":
                self.resources.pop(resource, None)

    def collect(self) -> None:
        """Keep what is selected, and what that strongly references: that something leaves is not told."""
        kept, todo = set(), list(self.selected)
        while todo:
            if (resource := todo.pop()) not in kept:
                kept.add(resource)
                for name, value in self.resources.get(resource, []):
                    if value["type"] == "uri" and (name in self.strong or "#_:" in value["value"]):
                        todo.append(value["value"])
        self.resources = {uri: said for uri, said in self.resources.items() if uri in kept}


def strong_properties(statements: list[Any]) -> set[str]:
    """Those that are said to be strong, and those below them of which nothing is said."""
    said = {s: o["value"] == MDV + "strong" for s, p, o in statements if p == MDV + "reference"}
    above: dict[str, list[str]] = {}
    for subject, name, value in statements:
        if name == SUB:
            above.setdefault(subject, []).append(value["value"])
    found = {name for name, strong in said.items() if strong}
    while more := {s for s, over in above.items() if s not in said and s not in found and found & set(over)}:
        found |= more
    return found


def step(http: httpx2.Client, copy: Copy, wait: int = 30) -> bool:
    """Ask once, and apply the answer; whether there is no more."""
    asked = {"wait": wait, **({"after": copy.cursor} if copy.cursor else {})}
    answer = http.get("/api/v1/lmrs/self/feed", params=asked, timeout=wait + 30)
    if answer.status_code == 410:  # too old: take a snapshot, and keep what you have until it is whole
        copy.cursor, copy.begun = None, []
        return False
    page = answer.raise_for_status().json()
    copy.apply(page)
    return bool(page["up_to_date"])


if __name__ == "__main__":
    own = {"Authorization": f"Bearer {os.environ['MDV_LMR_TOKEN']}"}
    with httpx2.Client(base_url=os.environ["MDV_URL"], headers=own) as mdp:
        mine = Copy()
        while True:
            if step(mdp, mine):
                print(f"{len(mine.resources)} resources, {len(mine.selected)} of them selected")
