"""Who is banned, by id, by name and by network."""

from math import inf

import pytest

from trunkline.plugins.shipped.ban_list import Ban, BanList, ListFull, normal_form


def banned(*whos: tuple[str, str]) -> BanList:
    bans = BanList(100)
    for kind, who in whos:
        checked, who = normal_form(kind, who)
        bans.add(Ban(checked, who))
    return bans


def who_finds(bans: BanList, client_id: str = "c", username: str | None = None, address: str | None = None) -> str:
    found = bans.find(client_id, username, address)
    return "" if found is None else found.who


def test_each_kind_is_its_own() -> None:
    bans = banned(("client_id", "x"), ("username", "y"))
    assert who_finds(bans, "x") == "x"
    assert who_finds(bans, "y") == ""
    assert who_finds(bans, "c", "y") == "y"
    assert who_finds(bans, "c", "x") == ""
    assert who_finds(bans, "c", None) == ""


@pytest.mark.parametrize(
    ("network", "inside", "outside"),
    [
        ("10.1.2.3", ["10.1.2.3", "::ffff:10.1.2.3"], ["10.1.2.4", "::1"]),
        ("10.0.0.0/8", ["10.255.0.1"], ["11.0.0.1"]),
        ("10.9.9.9/8", ["10.1.1.1"], ["9.0.0.1"]),
        ("0.0.0.0/0", ["1.2.3.4"], ["::2"]),
        ("fe80::/10", ["fe80::1%eth0"], ["ff00::1", "10.0.0.1"]),
    ],
)
def test_networks(network: str, inside: list[str], outside: list[str]) -> None:
    bans = banned(("address", network), ("address", "192.0.2.0/24"))
    assert all(bans.find("c", None, address) for address in inside)
    assert not any(bans.find("c", None, address) for address in [*outside, "no address"])
    bans.remove(*normal_form("address", network))
    assert not any(bans.find("c", None, address) for address in inside)
    assert bans.find("c", None, "192.0.2.7")


def test_networks_of_one_length_are_found_apart() -> None:
    bans = banned(("address", "10.0.0.0/8"), ("address", "11.0.0.0/8"), ("address", "10.0.0.0/16"))
    bans.remove("address", "10.0.0.0/8")
    assert who_finds(bans, address="10.0.7.7") == "10.0.0.0/16"
    assert who_finds(bans, address="10.1.0.0") == ""
    assert who_finds(bans, address="11.1.0.0") == "11.0.0.0/8"


def test_a_ban_is_replaced_and_the_list_has_an_end() -> None:
    bans = BanList(2)
    bans.add(Ban("client_id", "a", until=1.0))
    bans.add(Ban("client_id", "b"))
    with pytest.raises(ListFull, match="2 bans"):
        bans.add(Ban("address", "10.0.0.1/32"))
    assert who_finds(bans, address="10.0.0.1") == ""
    bans.add(Ban("client_id", "a", "again"))
    assert [(ban.who, ban.until) for ban in bans] == [("a", inf), ("b", inf)]
    bans.remove("client_id", "b")
    bans.add(Ban("username", "c"))
    assert len(bans) == 2
    with pytest.raises(KeyError):
        bans.remove("client_id", "b")


@pytest.mark.parametrize(
    ("kind", "who", "words"),
    [
        ("name", "x", "kind is client_id, username, address"),
        ("username", "", "which username"),
        ("address", "x", "CIDR"),
    ],
)
def test_what_cannot_be_banned(kind: str, who: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        normal_form(kind, who)


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("sensor-*", ["sensor-", "sensor-1/2", "sensor-\n"], ["Sensor-1", "a sensor-1"]),
        ("*@example.com", ["eve@example.com"], ["eve@example.com.org", "eve@exampleXcom"]),
        ("dev-[0-9]?", ["dev-1a"], ["dev-a1", "dev-1", "dev-123"]),
        ("[!a]*", ["b", "*"], ["a", "abc"]),
        ("(a+)+$", ["(a+)+$"], ["aaa"]),
        ("[", ["["], ["x"]),
    ],
)
def test_patterns(pattern: str, inside: list[str], outside: list[str]) -> None:
    bans = banned(("client_id_pattern", pattern))
    assert all(bans.find(client_id, "other", None) for client_id in inside)
    assert not any(bans.find(client_id, "other", None) for client_id in outside)
    bans.remove("client_id_pattern", pattern)
    assert not any(bans.find(client_id, None, None) for client_id in inside)
    names = banned(("username_pattern", pattern))
    assert all(names.find("other", name, None) for name in inside)
    assert not names.find(inside[0], None, None)


@pytest.mark.parametrize(
    "pattern",
    ["*a" * 120 + "*b", "*?" * 120 + "b", "*[a-z]" * 40 + "*[0-9]", "(a+)+$", "(a|a)*b", "*aa" * 80 + "[0-9]"],
)
def test_no_pattern_takes_long_over_any_text(pattern: str) -> None:
    """With backtracking this test would not end."""
    bans = banned(("client_id_pattern", pattern))
    assert bans.find("a" * 65_535, None, None) is None


def test_patterns_have_bounds() -> None:
    bans = BanList(10, 2)
    for kind in ("client_id_pattern", "username_pattern"):
        bans.add(Ban(*normal_form(kind, "x*")))
    bans.add(Ban("client_id_pattern", "x*", "again"))
    with pytest.raises(ListFull, match="max_patterns"):
        bans.add(Ban("client_id_pattern", "y*"))
    assert len(bans) == 2
    with pytest.raises(ValueError, match="more than 256"):
        normal_form("username_pattern", "x" * 257)
