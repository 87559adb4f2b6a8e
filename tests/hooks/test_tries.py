"""How many wrong passwords are looked at, and whose."""

from typing import Any

import pytest

from trunkline.hooks import ClientInfo
from trunkline.hooks.passwords import REFUSED
from trunkline.hooks.tries import TOO_MANY, Tries, address_of


def tries(**settings: Any) -> Tries:
    defaults = {
        "max_failures": 3,
        "max_failures_by_address": 6,
        "window": 60.0,
        "pause": 30.0,
        "max_tracked": 100,
    }
    return Tries(**(defaults | settings))


def wrong(tries: Tries, address: str, whose: str, *passwords: bytes, now: float = 0.0) -> None:
    for password in passwords:
        assert tries.refusal(address, whose, password, now) is None
        tries.note(address, whose, password, now, right=False)


def test_a_wrong_password_is_remembered_and_counts_once() -> None:
    seen = tries()
    wrong(seen, "1.2.3.4", "ann", b"a")
    for _ in range(100):
        assert seen.refusal("1.2.3.4", "ann", b"a", 29.0) is REFUSED
    assert seen.refusal("5.6.7.8", "ann", b"a", 29.0) is REFUSED
    assert seen.refusal("1.2.3.4", "bob", b"a", 29.0) is None
    assert seen.refusal("1.2.3.4", "ann", b"b", 29.0) is None
    assert seen.refusal("1.2.3.4", "ann", b"a", 30.0) is None


def test_after_too_many_nothing_is_looked_at_for_a_while() -> None:
    seen = tries()
    wrong(seen, "1.2.3.4", "ann", b"a", b"b", b"c")
    assert seen.refusal("1.2.3.4", "ann", b"d", 29.0) is TOO_MANY
    assert seen.refusal("1.2.3.4", "bob", b"d", 29.0) is None
    assert seen.refusal("5.6.7.8", "ann", b"d", 29.0) is None
    assert seen.refusal("1.2.3.4", "ann", b"d", 30.0) is None


def test_failures_far_apart_are_not_too_many() -> None:
    seen = tries()
    for now in range(0, 600, 40):
        wrong(seen, "1.2.3.4", "ann", b"%d" % now, now=float(now))


def test_who_was_right_before_is_looked_at_whatever_others_do() -> None:
    seen = tries()
    seen.note("1.2.3.4", "ann", b"right", 0.0, right=True)
    for number in range(6):
        seen.note("1.2.3.4", "ann", b"%d" % number, 0.0, right=False)
    assert seen.refusal("1.2.3.4", "ann", b"x", 1.0) is TOO_MANY
    assert seen.refusal("1.2.3.4", "ann", b"right", 1.0) is None
    seen.note("1.2.3.4", "ann", b"right", 1.0, right=False)  # it has been changed
    assert seen.refusal("1.2.3.4", "ann", b"right", 2.0) is REFUSED


def test_a_right_password_ends_the_count() -> None:
    seen = tries()
    wrong(seen, "1.2.3.4", "ann", b"a", b"b")
    seen.note("1.2.3.4", "ann", b"right", 0.0, right=True)
    wrong(seen, "1.2.3.4", "ann", b"c", b"d")


def test_many_names_from_one_address_are_too_many_together() -> None:
    seen = tries()
    for number in range(6):
        wrong(seen, "1.2.3.4", f"user{number}", b"a")
    assert seen.refusal("1.2.3.4", "ann", b"a", 1.0) is TOO_MANY
    assert seen.refusal("5.6.7.8", "ann", b"a", 1.0) is None


def test_this_machine_may_be_many() -> None:
    seen = tries()
    for number in range(50):
        wrong(seen, "", f"user{number}", b"a")
    wrong(seen, "", "ann", b"a", b"b", b"c")
    assert seen.refusal("", "ann", b"d", 1.0) is TOO_MANY


def test_any_number_of_failures() -> None:
    seen = tries(max_failures=0, max_failures_by_address=0)
    wrong(seen, "1.2.3.4", "ann", *[b"%d" % number for number in range(100)])


def test_no_more_is_remembered_than_was_configured() -> None:
    seen = tries(max_tracked=10)
    for number in range(1000):
        seen.note(f"10.0.0.{number}", f"u{number}", b"a", 0.0, right=number % 2 == 0)
    tables = [seen._wrong, seen._right, seen._failures]  # pyright: ignore[reportPrivateUsage]
    assert [len(table) for table in tables] == [10, 10, 10]


def test_names_and_passwords_are_not_run_together() -> None:
    seen = tries()
    wrong(seen, "", "ann", b"abc")
    assert seen.refusal("", "anna", b"bc", 1.0) is None


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        (None, ""),
        ("127.0.0.1", ""),
        ("::1", ""),
        ("::ffff:127.0.0.1", ""),
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("elsewhere", "elsewhere"),
    ],
)
def test_what_counts_as_one_address(peer: str | None, address: str) -> None:
    assert address_of(ClientInfo("c", peer=None if peer is None else (peer, 1))) == address
