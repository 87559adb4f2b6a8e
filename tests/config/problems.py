from pathlib import Path

import pytest

from trunkline.config.errors import ConfigError
from trunkline.config.reader import Override, from_mapping, load


def problems(
    path: Path | None = None, environ: dict[str, str] | None = None, overrides: dict[str, Override] | None = None
) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(path, environ or {}, overrides or {})
    assert str(caught.value) == "\n".join(map(str, caught.value.problems))
    return [str(problem) for problem in caught.value.problems]


def problems_of(table: dict[str, object]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        from_mapping(table)
    return [f"{problem.key}: {problem.text}" for problem in caught.value.problems]


def refusal(listener: object) -> str:
    with pytest.raises(ConfigError) as refused:
        from_mapping({"listeners": [listener]})
    (problem,) = refused.value.problems
    return str(problem).removeprefix("settings: ")
