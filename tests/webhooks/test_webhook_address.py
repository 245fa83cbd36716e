"""Addresses that are sent to, and those that are not, however they are spelled."""

from __future__ import annotations

import pytest

from mdv.errors import BadRequest
from mdv.webhooks.address import allowed_addresses, is_allowed, read_url

PUBLIC = "93.184.215.14"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("ftp://hooks.example/", "begin with https"), ("file:///etc/passwd", "begin with https"),
        ("hooks.example/mdv", "begin with https"), ("", "begin with https"), ("//hooks.example", "begin with https"),
        ("https:///mdv", "names no host"), ("https://:443/", "names no host"),
        ("https://me:secret@hooks.example/", "user or password"), ("https://me@hooks.example/", "user or password"),
        ("https://hooks.example\\@127.0.0.1/", "user or password"),
        ("https://hooks.example/#part", "part after #"), ("https://hooks.example:0/", "port 0"),
        ("https://hooks.example:65536/", "port 65536"), ("https://hooks.example:x/", "cannot be read"),
        ("https://hooks.example/\n", "cannot be read"), ("https://hooks.example/\0", "cannot be read"),
        ("https://hooks.example/\ud800", "cannot be read"), ("https://[::1/", "cannot be read"),
        ("http://xn--/", "cannot be read"), ("http://xn--a.example/", "cannot be read"),
        ("https://hooks.example/" + "x" * 2000, "longer than 2,000"),
    ],
)  # fmt: skip
def test_what_is_no_address_to_send_to_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(BadRequest, match=sentence):
        read_url(text)


def test_names_and_paths_of_any_script_are_sent_as_ascii() -> None:
    target = read_url("HTTPS://Bücher.example/ü?q=ß")
    assert (target.host, target.port, target.path) == ("xn--bcher-kva.example", 443, b"/%C3%BC?q=%C3%9F")
    assert target.text.isascii()


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1",
        "169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192", "192.88.99.1", "198.18.0.1",
        "192.0.2.1", "224.0.0.1", "239.1.2.3", "240.0.0.1", "255.255.255.255",
        "::", "::1", "fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1", "fd00:ec2::254", "fd20:ce::254", "ff0e::1",
        "2001:db8::1", "3fff::1", "2001:0:4136:e378:8000:63bf:80ff:fffe",
        "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "::10.0.0.1", "2002:7f00:1::", "2002:a9fe:a9fe::",
        "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "::ffff:0:127.0.0.1", "::ffff:0:8.8.8.8",
        "4000::1", "5f00::1", "e000::1", "1fff::1",
    ],
)  # fmt: skip
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    assert not is_allowed(address)


@pytest.mark.parametrize("address", [PUBLIC, "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_a_public_address_is_allowed(address: str) -> None:
    assert is_allowed(address) and is_allowed(address, private=True)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "10.0.0.1", "fd12::1", "100.64.0.1", "::ffff:192.168.0.1"])
def test_private_addresses_can_be_allowed(address: str) -> None:
    assert is_allowed(address, private=True)


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0", "::", "169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "224.0.0.1", "ff02::1",
     "168.63.129.16", "100.100.100.200", "fd00:ec2::254", "64:ff9b::a9fe:a9fe", "::ffff:0:169.254.169.254"],
)  # fmt: skip
def test_where_clouds_keep_secrets_and_what_is_nobodys_address_is_never_allowed(address: str) -> None:
    assert not is_allowed(address, private=True)


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost.", "LOCALHOST", "127.0.0.1", "127.1", "2130706433", "0177.0.0.1", "0x7f.0.0.1",
     "0x7f000001", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]", "0", "0.0.0.0",
     "[::]", "[fe80::1%25lo]", "[64:ff9b::127.0.0.1]"],
)  # fmt: skip
def test_no_spelling_leads_to_this_machine(host: str) -> None:
    with pytest.raises(BadRequest, match=r"not on the public internet|cannot be found|cannot be read"):
        allowed_addresses(read_url(f"http://{host}:8080/hook"))


def test_localhost_is_named_with_its_address() -> None:
    with pytest.raises(BadRequest, match=r"The host localhost is at .+, which is not on the public internet\."):
        allowed_addresses(read_url("http://localhost/"))


def test_one_private_address_among_public_ones_is_enough_to_refuse() -> None:
    with pytest.raises(BadRequest, match=r"at 10\.0\.0\.1,"):
        allowed_addresses(read_url("https://hooks.example/"), resolve=lambda host, port: [PUBLIC, "10.0.0.1"])


def test_a_name_that_nobody_knows_is_refused_with_its_name() -> None:
    with pytest.raises(BadRequest, match=r"The host nobody\.invalid cannot be found"):
        allowed_addresses(read_url("https://nobody.invalid/"))
