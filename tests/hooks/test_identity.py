import pytest

from trunkline.hooks.identity import Certificate, Identity

CERTIFICATE = Certificate(
    common_name="b",
    subject="CN=a,CN=b,O=plant",
    serial="0AFF",
    names=(("DNS", "x.example"), ("DNS", "y.example")),
    common_names=("a", "b"),
)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("cn", "b"),
        ("san", "x.example"),
        ("dn", "CN=a,CN=b,O=plant"),
        ("serial", "0AFF"),
        ("psk", "device"),
        ("", ""),
    ],
)
def test_the_name_that_is_asked_for(source: str, name: str) -> None:
    assert Identity(CERTIFICATE, psk="device").named(source) == name


@pytest.mark.parametrize("source", ["cn", "san", "dn", "serial", "psk", ""])
def test_who_has_no_certificate_and_no_key_has_no_name(source: str) -> None:
    assert Identity().named(source) == ""
    assert Identity(Certificate()).named(source) == ""
    assert not Identity().is_ambiguous(source)


@pytest.mark.parametrize(
    ("source", "ambiguous"), [("cn", True), ("san", True), ("dn", False), ("serial", False), ("psk", False)]
)
def test_several_names_are_nobodys(source: str, ambiguous: bool) -> None:
    assert Identity(CERTIFICATE).is_ambiguous(source) is ambiguous
    same = Certificate(names=(("DNS", "x"), ("DNS", "x")), common_names=("a", "a"))
    assert not Identity(same).is_ambiguous(source)
