import pytest

from trunkline.hooks.credentials import CredentialsError, parse_entries, replace_entry


def test_a_name_may_have_colons_and_the_fields_after_it_none() -> None:
    text = "# people\n\n  \nada:1\r\na:b:2\n"
    assert parse_entries(text, "f", 1, int) == {"ada": 1, "a:b": 2}
    assert parse_entries("a:b:1:2\n", "f", 2, str) == {"a:b": "1:2"}


def test_every_problem_is_told_with_its_line() -> None:
    with pytest.raises(CredentialsError) as caught:
        parse_entries("ada:x\n:1:2\neve:1:2\neve:1:2\nbob:1:2", "f", 2, len)
    assert caught.value.problems == [
        "f:1: no name; accepted: name:…:…",
        "f:2: no name; accepted: name:…:…",
        "f:4: 'eve' occurs twice",
    ]
    assert str(caught.value) == "\n".join(caught.value.problems)
    with pytest.raises(CredentialsError, match=r"^f:1: no ':' in the line; accepted: name:…$"):
        parse_entries("ada", "f", 1, int)
    with pytest.raises(CredentialsError, match=r"^f:2: invalid literal for int"):
        parse_entries("ada:1\nbob:x", "f", 1, int)


@pytest.mark.parametrize(
    ("text", "name", "value", "changed"),
    [
        ("", "ada", "1", "ada:1\n"),
        ("# x\nada:1\n\nbob:2", "ada", "3", "# x\nada:3\n\nbob:2\n"),
        ("ada:1\nada:2\nbob:2\n", "ada", "3", "ada:3\nbob:2\n"),
        ("ada:1\n", "ad", "3", "ada:1\nad:3\n"),
        ("a:b:1\n", "a:b", "3", "a:b:3\n"),
        ("ada:1\nbob:2\n", "ada", None, "bob:2\n"),
        ("#ada:1\nada:1\n", "ada", None, "#ada:1\n"),
    ],
)
def test_one_entry_is_replaced_and_the_rest_is_kept(text: str, name: str, value: str | None, changed: str) -> None:
    assert replace_entry(text, name, value, 1) == changed


def test_what_is_not_there_cannot_be_deleted() -> None:
    with pytest.raises(LookupError, match="'bob' is not in the file"):
        replace_entry("ada:1\n", "bob", None, 1)


@pytest.mark.parametrize("name", ["", "#x", "a\nb", " a", "a ", "a\x00"])
def test_a_name_has_to_be_readable_as_one(name: str) -> None:
    with pytest.raises(ValueError, match="a name must be printable"):
        replace_entry("", name, "1", 1)
