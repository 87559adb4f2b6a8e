import pytest

from trunkline.plugins.errors import PluginError, contained, ends_process


@pytest.mark.parametrize(
    ("error", "ends"),
    [(SystemExit(3), True), (ValueError("x"), False), (KeyboardInterrupt(), False), (GeneratorExit(), False)],
)
def test_what_would_end_the_process(error: BaseException, ends: bool) -> None:
    assert ends_process(error) is ends


def test_an_exit_becomes_an_error_of_the_plugin() -> None:
    words = r"^its import tried to end the process: SystemExit\(3\)$"
    with pytest.raises(PluginError, match=words) as caught, contained("its import"):
        raise SystemExit(3)
    assert isinstance(caught.value.__cause__, SystemExit)


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_other_errors_come_out_as_they_are(kind: type[BaseException]) -> None:
    with pytest.raises(kind), contained("its import"):
        raise kind


def test_each_problem_is_a_line() -> None:
    error = PluginError(["one", "two"])
    assert (str(error), error.problems) == ("one\ntwo", ["one", "two"])
