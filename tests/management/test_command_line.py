import pytest

from trunkline.management.command_line import fail


def test_each_problem_is_a_line_of_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        fail(["one", ValueError("two")], 3)
    assert ended.value.code == 3
    assert capsys.readouterr() == ("", "trunkline: one\ntrunkline: two\n")
