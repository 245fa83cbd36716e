"""LMRs and their subscriptions from the command line, at a running MDP."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from mdv.client import Client
from mdv.errors import NotFound, SystemNotFound, Unavailable
from mdv.system import System, find_lmr, write_system
from tests.support.eventually import eventually
from tests.support.whole_system import MDV, SCHEMA, Up, environment, suspend

DOC = "http://mdv.example/doc.rdf"
HOST, INFO = f"{DOC}#host", f"{DOC}#info"
LARGE = "search CycleProvider c register c where c.serverInformation.memory > 64"
HUGE = LARGE.replace("64", "9000")


@pytest.fixture
def on(running: Up, mdv: Callable) -> Callable:
    """A command on the running system, which has the paper's schema and the document of its Figure 1."""

    def run(*arguments: object) -> object:
        return mdv("--data", running.folder, *arguments)

    assert run("schema", "put", SCHEMA).code == 0
    assert run("register", SCHEMA.parent / "doc.rdf", "--uri", DOC).code == 0
    return run


@pytest.fixture
def library(on: Callable) -> Iterator[str]:
    """An LMR for this test."""
    name = f"a library {uuid.uuid4().hex[:8]}"
    assert on("lmr", "create", name).code == 0
    yield name
    on("lmr", "delete", name, "--yes")


@pytest.fixture
def without_lmr(running: Up, tmp_path: Path) -> Path:
    """The folder of the running system as if it had been started without an LMR."""
    known = running.system
    write_system(tmp_path, System(known.url, known.token, known.database_url, known.redis_url, known.pid))
    return tmp_path


def subscribed(on: Callable, lmr: str, rule: str = LARGE, *more: object) -> dict:
    ran = on("subscribe", "--text", rule, "--lmr", lmr, "--json", *more)
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def listed(on: Callable, lmr: str) -> list[dict]:
    return json.loads(on("subscriptions", "--lmr", lmr, "--json").out)["items"]


def shown(on: Callable, lmr: str) -> dict:
    return json.loads(on("lmr", "show", lmr, "--json").out)


def opens(running: Up, token: str, lmr: str) -> bool:
    """Return True if a token opens the feed of an LMR."""
    with Client(System(running.system.url, token)) as mdp:
        try:
            return "cursor" in mdp.get("/lmrs/self/feed") and mdp.get("/lmrs/self")["name"] == lmr
        except Exception as error:
            assert "unknown or was revoked" in str(error), error
            return False


# LMRs


def test_without_a_terminal_only_the_token_is_printed_and_it_opens_the_feed(on: Callable, running: Up) -> None:
    made = on("lmr", "create", "müller & co")
    token = made.out.strip()
    assert (made.code, made.err) == (0, "") and made.out == f"{token}\n" and token.startswith("mdv_")
    assert opens(running, token, "müller & co")

    again = on("lmr", "create", "müller & co")
    assert again.code == 1 and "already" in again.err and again.out == ""

    renewed = json.loads(on("lmr", "token", "müller & co", "--yes", "--json").out)
    assert renewed["name"] == "müller & co"
    assert opens(running, renewed["token"], "müller & co")
    assert not opens(running, token, "müller & co")

    assert on("lmr", "delete", "müller & co", "--yes").out == "The LMR müller & co is deleted.\n"
    assert not opens(running, renewed["token"], "müller & co")
    gone = on("lmr", "show", "müller & co")
    assert gone.code == 1 and "mdv lmr list" in gone.err


def test_lmrs_are_listed_with_their_counts(on: Callable, library: str) -> None:
    subscribed(on, library)
    facts = shown(on, library)
    assert (facts["subscriptions"], facts["resources"], facts["roots"], facts["asked_at"]) == (1, 2, 1, None)
    (line,) = [line for line in on("lmr", "list").out.splitlines() if f"\t{library}\t" in line]
    # The last two columns are empty: it has never connected, and its home is here.
    assert line == f"{facts['id']}\t{library}\t1\t2\t1\t{facts['behind']}\t\t"
    assert facts["behind"] > 0
    assert f"roots\t{facts['roots']}" in on("lmr", "show", library).out.splitlines()
    assert shown(on, str(facts["id"])) == facts


def test_the_list_of_lmrs_has_pages(on: Callable, library: str) -> None:
    assert on("lmr", "create", f"{library} too").code == 0
    page = json.loads(on("lmr", "list", "--json", "--limit", 1).out)
    assert len(page["items"]) == 1 and page["more"]
    names = [item["name"] for item in json.loads(on("lmr", "list", "--json").out)["items"]]
    assert {library, f"{library} too"} <= set(names)
    assert on("lmr", "delete", f"{library} too", "--yes").code == 0


@pytest.mark.parametrize("verb", ["delete", "token"])
def test_irreversible_changes_need_confirmation(verb: str, on: Callable, library: str, monkeypatch) -> None:
    with Path("/dev/null").open() as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        ran = on("lmr", verb, library)
    assert ran.code == 2 and "--yes" in ran.err
    assert shown(on, library)["name"] == library


@pytest.mark.parametrize("name", ["", ".", "..", "nobody", "no/body", "self"])
def test_an_unknown_lmr_name_is_reported_in_a_sentence(name: str, on: Callable) -> None:
    for line in (["lmr", "show", name], ["lmr", "delete", name, "--yes"], ["subscriptions", "--lmr", name]):
        ran = on(*line)
        assert (ran.code, ran.out) == (1, "")
        assert ran.err.startswith("mdv: Not found: ")


# Subscriptions


def test_a_subscription_is_created_listed_changed_and_removed(on: Callable, library: str, tmp_path: Path) -> None:
    file = tmp_path / "large.rule"
    file.write_text(LARGE.replace(" where", "\nwhere  "), "utf-8")
    made = on("subscribe", file, "--name", "large", "--lmr", library)
    assert made.code == 0, made.err
    (one,) = listed(on, library)
    assert made.out == f"Subscription {one['id']} is made; its matches are in the feed of {library}.\n"
    assert (one["name"], one["rule"]) == ("large", file.read_text("utf-8"))
    line = f"{one['id']}\tlarge\t{one['position']}\t{LARGE}\tactive\n"
    assert on("subscriptions", "--lmr", library).out == line
    assert shown(on, library)["roots"] == 1

    changed = json.loads(on("subscriptions", "change", one["id"], "--text", HUGE, "--lmr", library, "--json").out)
    assert (changed["id"], changed["name"], changed["rule"]) == (one["id"], "large", HUGE)
    assert shown(on, library)["roots"] == 0
    assert on("subscriptions", "change", one["id"], file, "--lmr", library).code == 0
    assert shown(on, library)["roots"] == 1

    assert on("unsubscribe", one["id"], "--lmr", library).out == f"Subscription {one['id']} is removed.\n"
    assert listed(on, library) == []


def test_a_suspended_subscription_is_listed_as_such_and_resumed(on: Callable, library: str, running: Up) -> None:
    number = subscribed(on, library)["id"]
    position = suspend(running, number)
    (one,) = listed(on, library)
    assert (one["state"], one["suspended"]["position"]) == ("suspended", position)
    told = on("subscriptions", "--lmr", library)
    assert told.out.endswith("\tsuspended\n")
    said = f"mdv: Subscription {number} is suspended since position {position}: It took 9 s. "
    assert told.err == f"{said}`mdv subscriptions resume {number} --lmr '{library}'` resumes it.\n"
    assert f"suspended since position {position}" in on("explain", HOST, "--lmr", library).out
    doctor = on("doctor")
    assert f"1 rule is suspended: {number} of {library}, since position {position}" in doctor.out
    assert f"mdv subscriptions resume {number}" in doctor.out
    assert "suspended\t1 rule" in on("status").out
    resumed = on("subscriptions", "resume", number, "--lmr", library)
    assert resumed.out == f"Subscription {number} is active; the difference is in the feed of {library}.\n"
    again = json.loads(on("subscriptions", "resume", number, "--lmr", library, "--json").out)
    assert (again["id"], again["state"]) == (number, "active")
    assert on("subscriptions", "--lmr", library).err == ""
    assert "ok  rules: No rule is suspended." in on("doctor").out
    assert "suspended" not in on("status").out
    missing = on("subscriptions", "resume", 999_999_999, "--lmr", library)
    assert missing.code == 1 and "no subscription" in missing.err


def test_a_suspended_subscription_is_resumed_at_the_lmr(on: Callable, running: Up) -> None:
    number = json.loads(on("subscribe", "--text", LARGE, "--json").out)["id"]
    suspend(running, number)
    eventually(lambda: "1 rule suspended" in on("status").out)
    told = on("subscriptions")
    assert f"`mdv subscriptions resume {number}`" in told.err
    assert on("subscriptions", "resume", number).out == (
        f"Subscription {number} is active; the difference is at the LMR.\n"
    )
    assert "suspended" not in on("status").out
    assert on("unsubscribe", number).code == 0


def test_subscriptions_have_pages(on: Callable, library: str) -> None:
    for _ in range(3):
        subscribed(on, library)
    page = json.loads(on("subscriptions", "--lmr", library, "--limit", 2, "--json").out)
    assert len(page["items"]) == 2 and page["more"]
    assert len(on("subscriptions", "--lmr", library, "--limit", 2).out.splitlines()) == 2
    assert len(listed(on, library)) == 3


def test_a_rule_and_the_one_that_searches_it_are_removed_in_either_order(on: Callable, library: str) -> None:
    inner = subscribed(on, library, LARGE, "--name", "large")["id"]
    outer = subscribed(on, library, "search large l register l")["id"]
    alone = on("unsubscribe", inner, "--lmr", library)
    assert alone.code == 1 and "mdv: Conflict: " in alone.err and alone.out == ""
    assert on("unsubscribe", inner, outer, "--lmr", library).code == 0
    assert listed(on, library) == []


def test_an_unknown_subscription_does_not_block_the_removal_of_others(on: Callable, library: str) -> None:
    number = subscribed(on, library)["id"]
    ran = on("unsubscribe", 999_999_999, number, "--lmr", library, "--json")
    assert ran.code == 1 and json.loads(ran.out) == {"ended": [number], "failed": 1}
    assert "has no subscription 999999999" in ran.err
    assert listed(on, library) == []


def test_subscriptions_belong_to_their_lmr(on: Callable, library: str) -> None:
    assert on("lmr", "create", f"{library} too").code == 0
    number = subscribed(on, library)["id"]
    for line in (["unsubscribe", number], ["subscriptions", "change", number, "--text", HUGE]):
        assert on(*line, "--lmr", f"{library} too").code == 1
    assert [one["rule"] for one in listed(on, library)] == [LARGE]
    assert on("lmr", "delete", f"{library} too", "--yes").code == 0


def test_an_invalid_rule_is_refused_with_its_place(on: Callable, library: str) -> None:
    wrong = on("subscribe", "--text", LARGE.replace("memory", "memry"), "--lmr", library)
    assert wrong.code == 1 and "^^^^^" in wrong.err and "memory" in wrong.err
    assert listed(on, library) == []


def test_many_rules_are_subscribed_together_or_not_at_all(on: Callable, library: str, tmp_path: Path) -> None:
    file = tmp_path / "rules.jsonl"
    lines = [{"rule": LARGE.replace("64", str(number))} for number in range(50)]
    lines.append({"rule": "search first f register f"})
    lines[0]["name"] = "first"
    file.write_text("\n\n".join(json.dumps(line) for line in lines) + "\n", "utf-8")
    told = on("subscribe", "--many", file, "--lmr", library)
    assert told.code == 0, told.err
    assert told.out.startswith("51 subscriptions are made in ") and f"in the feed of {library}" in told.out
    assert [(one["name"], one["rule"]) for one in listed(on, library)] == [(x.get("name"), x["rule"]) for x in lines]

    file.write_text("\n".join(json.dumps({"rule": rule}) for rule in (HUGE, "search Nonsense n register n")), "utf-8")
    refused = on("subscribe", "--many", file, "--lmr", library)
    assert refused.code == 1 and "Nonsense" in refused.err
    assert len(listed(on, library)) == 51

    file.write_text(json.dumps({"rule": HUGE}), "utf-8")
    answer = json.loads(on("subscribe", "--many", file, "--lmr", library, "--json").out)
    assert answer["count"] == 1 and answer["items"][0]["position"] == answer["position"]


def test_invalid_lines_of_rules_are_reported_by_number(on: Callable, library: str, tmp_path: Path) -> None:
    file = tmp_path / "rules.jsonl"
    good = json.dumps({"rule": LARGE})
    file.write_text("\n".join([good, "search", good, '["x"]', '{"rule": 1}', '{"rule": "x", "nam": "y"}',
                               '{"rule": "x", "name": 7}']), "utf-8")  # fmt: skip
    ran = on("subscribe", "--many", file, "--lmr", library)
    assert ran.code == 1
    assert [line.split(":")[0].strip() for line in ran.err.splitlines()[1:]] == [f"line {n}" for n in (2, 4, 5, 6, 7)]
    assert "'nam'" in ran.err
    file.write_text("\n", "utf-8")
    assert "contains no rule" in on("subscribe", "--many", file, "--lmr", library).err
    assert listed(on, library) == []


# Proposed rules


def test_without_a_choice_proposals_are_printed_and_nothing_is_subscribed(on: Callable, library: str) -> None:
    ran = on("subscribe", "--like", HOST, "--lmr", library)
    assert ran.code == 0 and "no subscription was made" in ran.err and "--choose N" in ran.err
    rows = [line.split("\t") for line in ran.out.splitlines()]
    assert [row[0] for row in rows] == [str(number) for number in range(1, len(rows) + 1)] and len(rows) > 1
    assert rows[0][1] == "1" and f"<{HOST}>" in rows[0][3]
    proposed = on("subscribe", "--like", HOST, "--lmr", library, "--json")
    items = json.loads(proposed.out)["items"]
    assert len(items) == len(rows) and {"rule", "selects", "more", "why"} <= set(items[0])
    assert "no subscription was made" in proposed.err
    assert listed(on, library) == []


def test_a_proposal_is_chosen_by_its_number(on: Callable, library: str) -> None:
    items = json.loads(on("subscribe", "--like", HOST, "--json").out)["items"]
    ran = on("subscribe", "--like", HOST, "--choose", 1, "--lmr", library)
    assert ran.code == 0 and f"<{HOST}>" in ran.out
    assert [one["rule"] for one in listed(on, library)] == [items[0]["rule"]]
    assert shown(on, library)["roots"] == 1
    beyond = on("subscribe", "--like", HOST, "--choose", 99, "--lmr", library)
    assert beyond.code == 1 and f"1 to {len(items)}" in beyond.err
    unknown = on("subscribe", "--like", f"{DOC}#nobody", "--choose", 1, "--lmr", library)
    assert unknown.code == 1 and unknown.err.startswith("mdv: Not found: ")
    assert len(listed(on, library)) == 1


def at_a_terminal(running: Up, words: list[str], answer: bytes) -> tuple[int, str]:
    """Run a command whose caller sits at a terminal and types `answer`."""
    argv = [str(MDV), *words, "--data", str(running.folder)]
    master, slave = pty.openpty()
    process = subprocess.Popen(
        argv, stdout=slave, stderr=slave, stdin=slave, env=environment(TERM="xterm", COLUMNS="80")
    )
    os.close(slave)
    os.write(master, answer)
    written = b""
    try:
        while chunk := os.read(master, 4096):
            written += chunk
    except OSError:  # the other end was closed
        pass
    os.close(master)
    return process.wait(60), written.decode()


def test_lists_of_lmrs_fit_a_terminal_of_80_columns(running: Up, on: Callable, library: str) -> None:
    subscribed(on, library)
    moment = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d|never")
    for command in ("lmr list", "status"):
        code, written = at_a_terminal(running, command.split(), b"")
        lines = re.sub(r"\x1b\[[0-9;]*m", "", written).splitlines()
        assert code == 0 and max(map(len, lines)) <= 80
        (line,) = [line for line in lines if re.search(rf"{library} +\d", line)]
        assert moment.search(line), f"the name and the time of an LMR are on one line: {line}"


def test_a_terminal_user_is_prompted_for_a_proposal(running: Up, on: Callable, library: str) -> None:
    code, written = at_a_terminal(running, ["subscribe", "--like", HOST, "--lmr", library], b"99\n1\n")
    assert code == 0, written
    assert "─" in written and "selects" in written and "is made" in written
    assert [f"<{HOST}>" in one["rule"] for one in listed(on, library)] == [True]


def test_a_terminal_user_is_prompted_before_an_lmr_is_deleted(running: Up, on: Callable, library: str) -> None:
    code, written = at_a_terminal(running, ["lmr", "delete", library], b"n\n")
    assert code == 1 and f"Delete the LMR {library}" in written
    assert shown(on, library)["name"] == library
    code, _ = at_a_terminal(running, ["lmr", "delete", library], b"y\n")
    assert code == 0 and on("lmr", "show", library).code == 1


# Explanations


def test_explain_shows_why_a_resource_is_or_is_not_at_an_lmr(on: Callable, library: str) -> None:
    number = subscribed(on, library, LARGE, "--name", "large")["id"]
    selected = on("explain", HOST, "--lmr", library)
    assert selected.code == 0 and f"rule {number} (large): {LARGE}" in selected.out and "92" in selected.out
    reached = on("explain", INFO, "--lmr", library)
    assert f"<{HOST}> (selected by rule {number} (large)) refers by " in reached.out
    assert json.loads(on("explain", INFO, "--lmr", library, "--json").out)["held"] is True

    assert on("subscriptions", "change", number, "--text", HUGE, "--lmr", library).code == 0
    neither = on("explain", HOST, "--lmr", library)
    assert neither.code == 0 and "memory is 92" in neither.out
    assert json.loads(on("explain", HOST, "--lmr", library, "--json").out)["held"] is False
    for line in (["explain", "no uri", "--lmr", library], ["explain", HOST, "--lmr", "nobody"]):
        ran = on(*line)
        assert ran.code == 1 and ran.err.startswith("mdv: ")


# At the LMR


def test_at_the_lmr_the_matches_are_cached_when_the_command_ends(on: Callable) -> None:
    everything = ["query", "--lmr", "search rdfs:Resource r register r", "--json"]
    hosts = ["query", "--lmr", f"search CycleProvider c where c = <{HOST}> return c.serverHost"]
    made = on("subscribe", "--like", HOST, "--choose", 1, "--json")
    assert made.code == 0, made.err
    number = json.loads(made.out)["id"]
    assert on(*hosts).out == "pirates.uni-passau.de\n"
    assert {HOST, INFO} <= {item["uri"] for item in json.loads(on(*everything).out)["items"]}
    assert str(number) in [line.split("\t")[0] for line in on("subscriptions").out.splitlines()]
    assert "is at the LMR" in on("explain", INFO).out
    wrong = on("subscribe", "--text", LARGE.replace("memory", "memry"))
    assert wrong.code == 1 and "^^^^^" in wrong.err

    assert on("unsubscribe", number).out == f"Subscription {number} is removed.\n"
    assert on("unsubscribe", number).code == 1
    eventually(lambda: on(*hosts).out == "")


# Invalid arguments, and LMRs that do not exist


@pytest.mark.parametrize(
    "line",
    ["subscribe", "subscribe --text x --like y", "subscribe --text x --choose 1", "subscribe --like x --choose 0",
     "subscribe --many /dev/null", "subscribe --many /dev/null --name n --lmr l", "subscribe nowhere.rule",
     "unsubscribe", "unsubscribe x", "unsubscribe 0", "subscriptions change 3", "subscriptions resume",
     "subscriptions resume x", "subscriptions --lmr l change 3",
     "lmr create", "explain"],
)  # fmt: skip
def test_invalid_arguments_exit_with_2(line: str, mdv: Callable) -> None:
    ran = mdv(*line.split())
    assert ran.code == 2 and "Error:" in ran.err


@pytest.mark.parametrize("line", ["subscribe --text x", "subscriptions", "unsubscribe 3"])
def test_without_an_lmr_the_error_suggests_naming_one_of_the_mdp(line: str, mdv: Callable, without_lmr: Path) -> None:
    ran = mdv(*line.split(), "--data", without_lmr)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("mdv: Not found: The MDV in ")
    assert "MDV_LMR_URL" in ran.err and "--lmr NAME" in ran.err


def test_a_query_at_an_lmr_needs_an_lmr_address(mdv: Callable, without_lmr: Path) -> None:
    ran = mdv("query", "--lmr", "search CycleProvider c return c", "--data", without_lmr)
    assert ran.code == 1 and "MDV_LMR_URL" in ran.err
    assert "--lmr NAME" not in ran.err


def test_an_unreachable_lmr_is_reported_in_a_sentence(mdv: Callable, monkeypatch) -> None:
    monkeypatch.setenv("MDV_LMR_URL", "http://127.0.0.1:9")
    for line in (["query", "--lmr", "search CycleProvider c return c"], ["subscriptions"], ["unsubscribe", 3]):
        ran = mdv(*line)
        assert ran.code == 1
        assert "The LMR at http://127.0.0.1:9 (from MDV_LMR_URL) is not running; " in ran.err


def test_the_lmr_is_found_by_folder_or_environment(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".mdv").mkdir()
    write_system(tmp_path / ".mdv", System("http://mdp", "secret", pid=1, lmr_url="http://lmr"))
    far = {"MDV_LMR_URL": "https://far.example/", "MDV_LMR_TOKEN": "t", "MDV_TOKEN": "other"}

    def found(data: Path | None, told: dict[str, str]) -> tuple[str, str]:
        system = find_lmr(data, told)
        return system.url, system.token

    assert found(None, {}) == ("http://lmr", "secret")
    assert found(None, {"MDV_TOKEN": "mine"}) == ("http://lmr", "mine")
    assert found(None, far) == ("https://far.example", "t")
    assert found(Path(".mdv"), far) == ("http://lmr", "secret")
    assert found(None, {"MDV_LMR_URL": "http://a", "MDV_ADMIN_TOKEN": "a"}) == ("http://a", "a")
    with pytest.raises(NotFound, match="MDV_URL names an MDP"):
        find_lmr(None, {"MDV_URL": "http://mdp.example"})
    with pytest.raises(SystemNotFound, match="MDV_LMR_URL is 'far:1'; it must be a URL"):
        find_lmr(None, {"MDV_LMR_URL": "far:1"})


# A change without an idempotency key


def test_a_change_without_a_key_is_not_repeated_if_its_response_is_lost() -> None:
    def cut(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        if len(asked) == 1:
            return httpx2.Response(200, json={"items": [], "next": None})
        raise httpx2.ReadError("cut")

    asked: list[httpx2.Request] = []
    system = System("http://127.0.0.1:9", "secret")
    with Client(system, transport=httpx2.MockTransport(cut), sleep=lambda _: None) as mdp:
        mdp.get("/lmrs")
        with pytest.raises(Unavailable, match="check whether the change was made"):
            mdp.change("POST", "/lmrs", {"name": "x"})
    assert len(asked) == 2


def test_a_change_without_a_key_is_retried_only_if_it_was_not_started() -> None:
    answers = [httpx2.Response(429), httpx2.Response(204), httpx2.Response(503, json=Unavailable("away").problem())]
    system = System("http://127.0.0.1:9", "secret")
    transport = httpx2.MockTransport(lambda _: answers.pop(0))
    with Client(system, transport=transport, sleep=lambda _: None) as mdp:
        assert mdp.change("DELETE", "/subscriptions/3") == {}
        with pytest.raises(Unavailable, match="away"):
            mdp.change("DELETE", "/subscriptions/3")
    assert answers == []
