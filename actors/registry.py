# pyright: reportPrivateUsage=false
"""Names for actors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trunkline.actors.ref import Ref


class Registry:
    """Name to actor. A name is free again when its actor has ended, not before."""

    __slots__ = ("_refs",)

    def __init__(self) -> None:
        self._refs: dict[str, Ref[Any]] = {}

    def register(self, name: str, ref: Ref[Any]) -> None:
        """Raises ValueError when the name is taken or the actor has ended."""
        if name in self._refs:
            raise ValueError(f"{name!r} is taken by {self._refs[name]!r}")
        if ref._supervisor is None:
            raise ValueError(f"{ref!r} has ended")
        self._refs[name] = ref
        bonds = ref._tie()
        if bonds.names is None:
            bonds.names = []
        bonds.names.append((self, name))

    def unregister(self, name: str) -> None:
        """Free a name before its actor ends. Unknown names do no harm."""
        ref = self._refs.pop(name, None)
        if ref is not None and ref._bonds is not None and ref._bonds.names is not None:
            ref._bonds.names.remove((self, name))

    def forget(self, name: str, ref: Ref[Any]) -> None:
        """The actor has ended."""
        if self._refs.get(name) is ref:
            del self._refs[name]

    def get(self, name: str) -> Ref[Any] | None:
        return self._refs.get(name)

    def __getitem__(self, name: str) -> Ref[Any]:
        return self._refs[name]

    def __contains__(self, name: object) -> bool:
        return name in self._refs

    def __iter__(self) -> Iterator[str]:
        return iter(self._refs)

    def __len__(self) -> int:
        return len(self._refs)
