"""`mdv real lock`, against a running system."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.support.whole_system import Up

V = "http://mdv.example/schema#"


@pytest.fixture
def on(running: Up, mdv: Callable) -> Callable:
    return lambda *arguments: mdv("--data", running.folder, "real", "lock", *arguments)


def test_a_lock_is_added_listed_and_removed(on: Callable) -> None:
    options = "--document", "http://d/", "--property", V + "serverPort", "--object", '"80"'
    added = json.loads(on("add", *options, "--json").out)
    assert (added["document_prefix"], added["subject"], added["property"]) == ("http://d/", None, V + "serverPort")
    assert added["object"] == {"type": "literal", "value": "80"}
    number = str(added["id"])
    assert on("list").out.split("\n")[0].split("\t")[:4] == [number, "http://d/", "any", V + "serverPort"]
    assert on("remove", number).out == f"Lock {number} was removed.\n"
    gone = on("remove", number)
    assert gone.code != 0 and "There is no lock" in gone.err
    assert json.loads(on("list", "--json").out)["items"] == []


def test_a_lock_of_everything_is_refused(on: Callable) -> None:
    refused = on("add")
    assert refused.code != 0 and "needs a document prefix, a subject, a property or an object" in refused.err
