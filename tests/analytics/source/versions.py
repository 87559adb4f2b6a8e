"""Tests of what an older PySpark cannot do. `.ci/long` tries each version."""

from collections.abc import Iterator
from contextlib import contextmanager

import pyspark
import pytest


@contextmanager
def needs(version: str, what: str) -> Iterator[None]:
    """Skips the test that it decorates, the rest of one, or the module whose imports it holds, if PySpark is older than
    `version`."""
    if _numbers(pyspark.__version__) < _numbers(version):
        pytest.skip(f"{what}: PySpark {version} or newer is needed", allow_module_level=True)
    yield


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")[:2]]
