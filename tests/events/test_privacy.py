"""Hashes of personal data."""

from trunkline.events.privacy import LENGTH, Privacy


def test_a_hash_depends_on_text_and_key_alone() -> None:
    one, other = Privacy(["client_id", "publisher"], (), b"one"), Privacy(["client_id"], (), b"other")
    hide, publisher, elsewhere = one.of("client_id"), one.of("publisher"), other.of("client_id")
    assert hide is not None
    assert publisher is not None
    assert elsewhere is not None
    assert hide("ann") == publisher("ann") != hide("bob")
    assert hide("ann") != elsewhere("ann")
    assert len(hide("ann")) == LENGTH


def test_nothing_stays_nothing() -> None:
    hide = Privacy(["username"], (), b"k").of("username")
    assert hide is not None
    assert hide(None) is None
    assert hide("") == ""


def test_leaving_out_goes_before_hashing_and_others_are_shown() -> None:
    privacy = Privacy(["peer"], ["peer"], b"k")
    hide = privacy.of("peer")
    assert hide is not None
    assert hide("10.0.0.1") is None
    assert privacy.of("topic") is None


def test_what_is_remembered_is_bounded() -> None:
    privacy = Privacy(["client_id"], (), b"k")
    hide = privacy.of("client_id")
    assert hide is not None
    first = hide("c0")
    for number in range(25_000):
        hide(f"c{number}")
    assert len(privacy._known) <= 10_000
    assert hide("c0") == first
    for number in range(100):
        assert hide("x" * 60_000 + str(number)) != first
    assert max(map(len, privacy._known)) < 1000
