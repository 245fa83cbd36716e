"""Members of a backbone are restored with `mdv restore` from backups of different age, while others go on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mdv.cli import cli
from mdv.cli.errors import run_for_exit_code
from tests.support.eventually import eventually
from tests.support.http_backbone import HttpBackbone, HttpMember, check_equal, has, http_backbone
from tests.support.server import SCHEMA, provider

_numbers = itertools.count(1)


@pytest.fixture
def backbone(new_database: Callable[[], str], new_queue: Callable[[], str]) -> Iterator[HttpBackbone]:
    with http_backbone(new_database, new_queue, MDV_BACKBONE_CHECK_SECONDS="0") as backbone:
        assert backbone.found("m1").api.put_schema(SCHEMA).status_code == 200
        backbone.join("m2")
        yield backbone


@pytest.fixture
def mdv(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def run(member: HttpMember, *arguments: object) -> None:
        monkeypatch.setenv("MDV_DATABASE_URL", member.database_url)
        monkeypatch.setenv("MDV_REDIS_URL", member.redis_url)
        argv = list(map(str, arguments))
        assert run_for_exit_code(lambda: cli.main(argv, prog_name="mdv", standalone_mode=False)) == 0

    return run


def put(member: HttpMember) -> str:
    uri = f"http://docs.example/restore-{next(_numbers)}"
    assert member.api.put(uri, provider()).status_code == 201
    return uri


def restore(member: HttpMember, folder: Path, mdv: Callable[..., None]) -> None:
    member.stop()
    mdv(member, "restore", folder, "--replace")
    member.begin()


def test_restored_members_get_back_what_others_have_and_one_goes_first_if_all_are(
    backbone: HttpBackbone, mdv: Callable[..., None], tmp_path: Path
) -> None:
    m1, m2 = backbone.members.values()
    uris = [put(m1), put(m2)]
    backbone.rest()
    mdv(m2, "backup", tmp_path / "old")
    uris += [put(m1), put(m2)]
    backbone.rest()
    mdv(m1, "backup", tmp_path / "lead")
    life = m2.backbone()["life"]

    restore(m2, tmp_path / "old", mdv)
    meanwhile = put(m2)
    eventually(lambda: m2.backbone()["state"] == "active", detail=m2.backbone)
    assert m2.backbone()["life"] != life
    check_equal(backbone, *uris, meanwhile)
    assert all(has(member, uri) for member in (m1, m2) for uri in (*uris, meanwhile))

    mdv(m2, "backup", tmp_path / "new")
    lost = put(m1)
    backbone.rest()
    restore(m1, tmp_path / "lead", mdv)
    restore(m2, tmp_path / "new", mdv)
    assert m2.api.http.post("/api/v1/backbone/activation").status_code == 200
    eventually(lambda: m1.backbone()["state"] == "active", detail=m1.backbone)
    eventually(lambda: m2.backbone()["state"] == "active", detail=m2.backbone)
    assert m2.api.http.post("/api/v1/backbone/activation").status_code == 409
    after = put(m1)
    check_equal(backbone, *uris, meanwhile, after)
    assert not has(m1, lost) and has(m1, meanwhile) and has(m2, after)
