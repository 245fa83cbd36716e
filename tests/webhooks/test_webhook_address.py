"""Webhook addresses that are allowed and refused, in every spelling."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from mdv.errors import BadRequest
from mdv.webhooks.address import allowed_addresses, is_allowed, parse_url

PUBLIC = "93.184.215.14"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("ftp://hooks.example/", "begin with https"), ("file:///etc/passwd", "begin with https"),
        ("hooks.example/mdv", "begin with https"), ("", "begin with https"), ("//hooks.example", "begin with https"),
        ("https:///mdv", "has no host"), ("https://:443/", "has no host"),
        ("https://me:secret@hooks.example/", "user or password"), ("https://me@hooks.example/", "user or password"),
        ("https://hooks.example\\@127.0.0.1/", "user or password"),
        ("https://hooks.example/#part", "part after #"), ("https://hooks.example:0/", "port 0"),
        ("https://hooks.example:65536/", "port 65536"), ("https://hooks.example:x/", "is invalid"),
        ("https://hooks.example/\n", "is invalid"), ("https://hooks.example/\0", "is invalid"),
        ("https://hooks.example/\ud800", "is invalid"), ("https://[::1/", "is invalid"),
        ("http://xn--/", "is invalid"), ("http://xn--a.example/", "is invalid"),
        ("https://hooks.example/" + "x" * 2000, "longer than 2,000"),
    ],
)  # fmt: skip
def test_an_invalid_webhook_url_is_refused_with_a_message(text: str, sentence: str) -> None:
    with pytest.raises(BadRequest, match=sentence):
        parse_url(text)


def test_hosts_and_paths_in_any_script_are_sent_as_ascii() -> None:
    target = parse_url("HTTPS://Bücher.example/ü?q=ß")
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
def test_metadata_service_and_unspecified_addresses_are_never_allowed(address: str) -> None:
    assert not is_allowed(address, private=True)


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost.", "LOCALHOST", "127.0.0.1", "127.1", "2130706433", "0177.0.0.1", "0x7f.0.0.1",
     "0x7f000001", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]", "0", "0.0.0.0",
     "[::]", "[fe80::1%25lo]", "[64:ff9b::127.0.0.1]"],
)  # fmt: skip
def test_no_spelling_of_a_local_address_is_accepted(host: str) -> None:
    with pytest.raises(BadRequest, match=r"not on the public internet|cannot be resolved|is invalid"):
        allowed_addresses(parse_url(f"http://{host}:8080/hook"))


def test_localhost_is_refused_by_its_name() -> None:
    sentence = r"^The host localhost has an address that is not on the public internet\. .* MDV_WEBHOOK_PRIVATE=true\.$"
    with pytest.raises(BadRequest, match=sentence):
        allowed_addresses(parse_url("http://localhost/"))


@pytest.mark.parametrize(("address", "private"), [("10.0.0.1", False), ("169.254.169.254", True)])
def test_one_forbidden_address_among_public_ones_is_refused_and_named_only_in_the_log(
    address: str, private: bool
) -> None:
    with (
        capture_logs() as logged,
        pytest.raises(BadRequest, match=r"^The host hooks\.example has an address") as refused,
    ):
        allowed_addresses(parse_url("https://hooks.example/"), private, resolve=lambda host, port: [PUBLIC, address])
    assert address not in str(refused.value.problem())
    assert [(line["host"], line["address"]) for line in logged] == [("hooks.example", address)]


def test_an_unresolvable_host_is_refused_by_name() -> None:
    with pytest.raises(BadRequest, match=r"The host nobody\.invalid cannot be resolved"):
        allowed_addresses(parse_url("https://nobody.invalid/"))
