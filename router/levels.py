"""Filters and topics, level by level."""

from collections.abc import Sequence


def tail_matches(wanted: Sequence[str], levels: Sequence[str]) -> bool:
    """Whether the remaining levels of a filter match the remaining levels of a topic."""
    if wanted[-1] == "#":
        # `a/#` matches `a` as well.
        if len(levels) < len(wanted) - 1:
            return False
    elif len(levels) != len(wanted):
        return False
    # A generator would cost more than the comparison.
    for want, level in zip(wanted, levels, strict=False):  # noqa: SIM110
        if want != level and want != "+" and want != "#":
            return False
    return True
