"""Results that came by MQTT beside those that plain Python computed."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isclose
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trunkline.analytics.demo.reference import Rows

#: Differences that are told one by one.
TOLD: Final = 5


@dataclass(frozen=True, slots=True)
class Check:
    """How the results of a job compare."""

    job: str
    #: What a row of it is, in words.
    what: str
    equal: int
    #: Each in a line.
    differences: list[str] = field(default_factory=list[str])
    #: Of the differences, those that are nothing but late, or lost.
    missing: int = 0

    @property
    def good(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        if self.good:
            return f"{self.job}: {self.equal} {self.what} equal"
        lines = self.differences[:TOLD]
        if len(self.differences) > TOLD:
            lines.append(f"… and {len(self.differences) - TOLD} more")
        return f"{self.job}: {self.equal} {self.what} equal, {len(self.differences)} not:" + "".join(
            f"\n  {line}" for line in lines
        )


def compare(job: str, what: str, expected: Rows, found: Rows) -> Check:
    """Whether both have the same rows, in the columns that are expected. What is null may be left out."""
    differences: list[str] = []
    equal = missing = 0
    for key in sorted(expected.keys() | found.keys(), key=str):
        if key not in found:
            missing += 1
            differences.append(f"{key}: did not come")
        elif key not in expected:
            differences.append(f"{key}: is too much")
        elif wrong := _differing(expected[key], found[key]):
            differences.append(f"{key}: {wrong}")
        else:
            equal += 1
    return Check(job, what, equal, differences, missing)


def verdict(checks: Sequence[Check], events: int) -> str:
    """All of them in a line."""
    equal, missing = sum(check.equal for check in checks), sum(check.missing for check in checks)
    wrong = sum(len(check.differences) for check in checks) - missing
    told = f"checked: {equal} results equal to what plain Python computes from the same {events} events"
    return told + (f", {wrong} NOT equal" if wrong else "") + (f", {missing} did not come" if missing else "")


def _differing(expected: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} is {found.get(name)!r} and should be {value!r}"
        for name, value in expected.items()
        if not _same(value, found.get(name))
    )


def _same(expected: object, found: object) -> bool:
    if isinstance(expected, float) and isinstance(found, int | float):
        return isclose(expected, found, rel_tol=1e-9, abs_tol=1e-9)
    return expected == found
