"""Reading documents from archives of every kind."""

from __future__ import annotations

import gzip
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdv.batch import archives
from mdv.batch.archives import ArchiveMember, ArchiveShare, read_archive
from mdv.errors import MdvError, NotWellFormed, Refused, TooLarge
from tests.support.archives import add, make_archive

KINDS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")
MAX_BYTES = 100_000
BOOKS = {f"{year}/pg{n}.rdf": f"<book {year} {n}/>".encode() * n for year in (2014, 2018) for n in range(1, 20)}


def read(file: Path, share: ArchiveShare | None = None, contents: bool = True) -> list[ArchiveMember]:
    return list(read_archive(file, share or ArchiveShare(), MAX_BYTES, contents))


def errors(members: list[ArchiveMember]) -> dict[str | None, MdvError]:
    return {member.name: member.error for member in members if member.error is not None}


@pytest.mark.parametrize("kind", KINDS)
def test_documents_are_read_from_every_kind_of_archive(kind: str, tmp_path: Path) -> None:
    members = read(make_archive(tmp_path / f"books{kind}", BOOKS))
    assert {member.name: member.content for member in members} == BOOKS
    assert not errors(members)


@pytest.mark.parametrize("kind", KINDS)
def test_listing_names_gives_the_same_members_as_reading_contents(kind: str, tmp_path: Path) -> None:
    file = make_archive(tmp_path / f"books{kind}", {**BOOKS, "large.rdf": b"x" * (MAX_BYTES + 1), "in.zip": b"x"})
    named, whole = read(file, contents=False), read(file)
    assert [member[:2] for member in named] == [member[:2] for member in whole]
    assert errors(named).keys() == errors(whole).keys() == {"large.rdf", "in.zip"}
    assert all(member.content is None for member in named)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parts", [1, 2, 7, 100])
def test_shares_of_an_archive_together_contain_all_its_members(kind: str, parts: int, tmp_path: Path) -> None:
    file = make_archive(tmp_path / f"books{kind}", BOOKS)
    together = [member for part in range(parts) for member in read(file, ArchiveShare(part, parts))]
    assert sorted(together) == read(file)


@pytest.mark.parametrize("kind", KINDS)
def test_hidden_files_and_files_that_are_not_rdf_are_skipped(kind: str, tmp_path: Path) -> None:
    names = ["README.txt", ".x.rdf", ".git/x.rdf", "__MACOSX/._x.rdf", "rdf", "x.rdf.bak", "./a//b.TTL", "/etc/c.ttl"]
    members = read(make_archive(tmp_path / f"x{kind}", dict.fromkeys(names, b"x")))
    assert [member.name for member in members] == ["a/b.TTL", "etc/c.ttl"]


@pytest.mark.parametrize("kind", KINDS)
def test_unreadable_members_are_reported_and_the_others_are_read(kind: str, tmp_path: Path) -> None:
    odd = {"../up.rdf": b"x", "a.tar.gz": b"x", "a.nq": b"x", "large.rdf": b"x" * (MAX_BYTES + 1)}
    members = read(make_archive(tmp_path / f"x{kind}", {**odd, **BOOKS}))
    refused = errors(members)
    assert {name: type(error) for name, error in refused.items()} == {
        "../up.rdf": Refused, "a.tar.gz": Refused, "a.nq": Refused, "large.rdf": TooLarge,
    }  # fmt: skip
    assert (
        refused["large.rdf"].detail
        == "The document has 100,001 bytes; the limit is 100,000. Split it into several documents."
    )
    assert {member.name: member.content for member in members if member.error is None} == BOOKS


@pytest.mark.parametrize("kind", KINDS)
def test_compressed_members_are_decompressed_up_to_the_limit(kind: str, tmp_path: Path) -> None:
    packed = {"a.rdf.gz": gzip.compress(b"<a/>"), "b.rdf.gz": gzip.compress(bytes(10_000_000)), "c.rdf.gz": b"none"}
    members = read(make_archive(tmp_path / f"x{kind}", packed))
    assert members[0].content == b"<a/>"
    assert {name: type(error) for name, error in errors(members).items()} == {
        "b.rdf.gz": TooLarge,
        "c.rdf.gz": NotWellFormed,
    }


@pytest.mark.parametrize("kind", KINDS)
def test_the_later_of_two_members_with_one_name_has_the_greater_number(kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"x{kind}"
    if kind == ".zip":
        with zipfile.ZipFile(file, "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
            for content in (b"old", b"new"):
                archive.writestr("a.rdf", content)
    else:
        with tarfile.open(file, "w:" + kind.removeprefix(".tar").removeprefix(".").replace("tgz", "gz")) as tar:
            for content in (b"old", b"new"):
                add(tar, "a.rdf", content)
    assert [(member.number, member.content) for member in read(file)] == [(0, b"old"), (1, b"new")]


def test_links_and_devices_are_not_followed(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        add(archive, "a.rdf", b"x")
        add(archive, "hard.rdf", kind=tarfile.LNKTYPE, link="a.rdf")
        add(archive, "soft.rdf", kind=tarfile.SYMTYPE, link="/etc/passwd")
        add(archive, "pipe.rdf", kind=tarfile.FIFOTYPE)
        add(archive, "device.rdf", kind=tarfile.CHRTYPE)
        add(archive, "folder.rdf", kind=tarfile.DIRTYPE)
    members = read(tmp_path / "x.tar")
    assert [member.name for member in members] == ["a.rdf", "hard.rdf"]
    assert "link" in errors(members)["hard.rdf"].detail
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as zipped:
        link = zipfile.ZipInfo("soft.rdf")
        link.external_attr = 0o120777 << 16
        zipped.writestr(link, "/etc/passwd")
        zipped.writestr("folder.rdf/", "")
    assert read(tmp_path / "x.zip") == []


def test_names_that_are_not_utf_8_are_kept(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w", encoding="latin-1", format=tarfile.GNU_FORMAT) as archive:
        add(archive, "café.rdf", b"x")
    (member,) = read(tmp_path / "x.tar")
    assert member.name is not None
    assert member.name.encode("utf-8", "surrogateescape") == b"caf\xe9.rdf"


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    file = make_archive(tmp_path / "x.zip", {"a.rdf": b"secret", "b.rdf": b"x"})
    data = bytearray(file.read_bytes())
    data[data.index(b"PK\x03\x04") + 6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    file.write_bytes(data)
    members = read(file)
    assert "encrypted" in errors(members)["a.rdf"].detail
    assert members[1].content == b"x"


def test_a_zip_member_with_an_unsupported_method_or_a_wrong_checksum_is_refused_alone(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("bz2.rdf", b"x" * 1000, zipfile.ZIP_BZIP2)
        archive.writestr("changed.rdf", b"one text", zipfile.ZIP_STORED)
        archive.writestr("whole.rdf", b"x")
    file = tmp_path / "x.zip"
    file.write_bytes(file.read_bytes().replace(b"one text", b"two text"))
    members = read(file)
    assert {name: type(error) for name, error in errors(members).items()} == {
        "bz2.rdf": Refused,
        "changed.rdf": NotWellFormed,
    }
    assert members[2].content == b"x"


def test_a_zip_member_that_is_larger_than_its_header_states_is_refused(tmp_path: Path) -> None:
    file = make_archive(tmp_path / "x.zip", {"bomb.rdf": bytes(50_000_000)})
    data = bytearray(file.read_bytes())
    for mark, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = data.index(mark) + place
        data[at : at + 4] = (10).to_bytes(4, "little")
    file.write_bytes(data)
    assert errors(read(file)).keys() == {"bomb.rdf"}


def test_reading_stops_when_an_archive_unpacks_beyond_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MIN_SIZE_LIMIT_BYTES", 5_000_000)
    file = make_archive(tmp_path / "x.tar.xz", {"a.rdf": b"x", "zeros.bin": bytes(50_000_000), "b.rdf": b"x"})
    members = read(file)
    assert [member.name for member in members] == ["a.rdf", None]
    assert "unpacks to more than" in errors(members)[None].detail


def _header(name: str, kind: bytes, size: int) -> bytes:
    header = tarfile.TarInfo(name)
    header.type, header.size = kind, size
    return header.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    "header",
    [
        _header("x", tarfile.GNUTYPE_LONGNAME, 1 << 33),
        _header("x", tarfile.XHDTYPE, 1 << 33),
        _header("x", tarfile.XGLTYPE, 1 << 33),
        _header("x.rdf", tarfile.GNUTYPE_SPARSE, 512),
        _header("x", tarfile.XHDTYPE, 0) * 5000,
        b"no header" * 100,
        _header("x.rdf", tarfile.REGTYPE, 1 << 40),
    ],
    ids=["long name", "attributes", "attributes for all", "sparse", "headers of headers", "none", "endless member"],
)
def test_a_malicious_header_ends_the_archive(header: bytes, tmp_path: Path) -> None:
    file = make_archive(tmp_path / "x.tar", {"a.rdf": b"x"})
    file.write_bytes(file.read_bytes()[:1024] + header)
    members = read(file)
    assert members[0].content == b"x"
    assert members[-1].name is None
    assert isinstance(members[-1].error, NotWellFormed)
    other = [member[:2] for member in read(file, ArchiveShare(1, 2))]
    assert other == [member[:2] for member in members if member.number % 2 and member.name]


@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_archive_gives_its_readable_members_and_an_error(kind: str, tmp_path: Path) -> None:
    file = make_archive(tmp_path / f"whole{kind}", BOOKS)
    whole, data = read(file), file.read_bytes()
    end = len(data) if kind != ".tar" else len(data.rstrip(b"\0")) + 512  # a tar file ends in zeros
    for cut in sorted({*range(0, end - 1, end // 50), end // 1024 * 512, end - 1 if kind != ".tar" else end // 2}):
        damaged = tmp_path / f"cut{kind}"
        damaged.write_bytes(data[:cut])
        members = read(damaged)
        good = [member for member in members if member.error is None]
        assert good == whole[: len(good)]
        assert members[-1].name is None
        assert isinstance(members[-1].error, NotWellFormed)
        assert [member[:2] for member in members] == [member[:2] for member in read(damaged, contents=False)]
        shares = [member[:3] for part in range(3) for member in read(damaged, ArchiveShare(part, 3))]
        assert sorted(shares, key=lambda member: member[0]) == [member[:3] for member in members]


@settings(max_examples=60, deadline=None)
@given(kind=st.sampled_from(KINDS), changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=5))
def test_corrupted_bytes_never_raise_an_exception(kind: str, changes: list[tuple[float, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = make_archive(Path(folder) / f"x{kind}", BOOKS)
        data = bytearray(file.read_bytes())
        for place, value in changes:
            data[int(place * (len(data) - 1))] = value
        file.write_bytes(data)
        members = read(file)
        assert [member[:2] for member in members] == [member[:2] for member in read(file, contents=False)]
        assert all((member.content is None) == (member.error is not None) for member in members)


def test_a_member_at_a_position_before_the_beginning_of_a_zip_is_refused(tmp_path: Path) -> None:
    file = make_archive(tmp_path / "x.zip", BOOKS)
    data = bytearray(file.read_bytes())
    start = data.index(b"PK\x05\x06") + 16  # where the directory begins: members are read relative to it
    data[start : start + 4] = (int.from_bytes(data[start : start + 4], "little") + 7).to_bytes(4, "little")
    file.write_bytes(data)
    members = read(file)
    assert members and isinstance(members[0].error, NotWellFormed)


def test_an_io_error_is_raised_and_not_reported_as_a_bad_archive(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "gone.tar.gz")
