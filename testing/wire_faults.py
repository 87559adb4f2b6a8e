"""Wire faults: their effects on packets, bytes and connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from trunkline.testing.fault import Fault, Owner
from trunkline.testing.fault_layer import Disturbance
from trunkline.testing.portal import Portal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trunkline.hooks.chain import Hooks
    from trunkline.testing.fault_layer import FaultLayer, Network
    from trunkline.testing.packet_queue import PacketQueue
    from trunkline.testing.packets import Direction, RawPacket
    from trunkline.testing.selection import Selection

P = TypeVar("P", bound=Portal)


class WireFault(Fault[P], Disturbance):
    """Concerns the connections of one client, or all."""

    def __init__(
        self, owner: Owner[P], text: str, client: str | None, times: int | None = None, after: int = 0
    ) -> None:
        super().__init__(owner, text, times, after)
        self._client = client

    def begin(self, network: Network, hooks: Hooks) -> None:
        network.faults.append(self)
        network.update()

    def end(self, network: Network, hooks: Hooks) -> None:
        if self in network.faults:
            network.faults.remove(self)
            network.update()

    def concerns(self, layer: FaultLayer) -> bool:
        return not self.over and self._client in (None, layer.client_id)


# Packets


class PacketFault(WireFault[P]):
    """Happens to packets, one by one."""

    judges = True

    def __init__(
        self, owner: Owner[P], text: str, selection: Selection, act: Callable[[RawPacket, PacketQueue], None]
    ) -> None:
        """`act` deals with a packet that was chosen."""
        super().__init__(owner, f"{text} {selection}", selection.client, selection.times, selection.after)
        self._selection = selection
        self._act = act

    def judge(self, packet: RawPacket, queue: PacketQueue) -> bool:
        try:
            return self._selection.takes(packet) and self._chosen(packet, queue)
        except Exception as error:  # noqa: BLE001 - it is the test's
            self.failed(error)
            return False

    def _chosen(self, packet: RawPacket, queue: PacketQueue) -> bool:
        if not self.happens():
            return False
        self._act(packet, queue)
        return True


class Reorder(PacketFault[P]):
    """Holds one packet back, for each connection and direction, until `behind` others of the kind have passed."""

    def __init__(self, owner: Owner[P], selection: Selection, behind: int) -> None:
        super().__init__(owner, "reorder", selection, self._hold)
        self._behind = behind
        #: The held packets, and how many others must pass before each.
        self._held: dict[PacketQueue, tuple[bytes, int]] = {}

    def concerns(self, layer: FaultLayer) -> bool:
        return layer.incoming in self._held or layer.outgoing in self._held or super().concerns(layer)

    def _chosen(self, packet: RawPacket, queue: PacketQueue) -> bool:
        if queue not in self._held:
            return super()._chosen(packet, queue)
        data, missing = self._held.pop(queue)
        queue.put(packet.data)
        if missing > 1:
            self._held[queue] = (data, missing - 1)
        else:
            queue.put(data)
        return True

    def _hold(self, packet: RawPacket, queue: PacketQueue) -> None:
        self._held[queue] = (packet.data, self._behind)

    def end(self, network: Network, hooks: Hooks) -> None:
        super().end(network, hooks)
        for queue, (data, _) in self._held.items():
            queue.put(data)
            queue.release_soon()
        self._held.clear()


def lose(packet: RawPacket, queue: PacketQueue) -> None:
    queue.layer.network.on_loss(packet)


def invert_a_byte(data: bytes) -> bytes:
    """The first byte behind the fixed header is inverted; of a packet that is nothing else, its first byte."""
    position = 1 + next(at for at, byte in enumerate(data[1:], 1) if byte < 0x80)
    position %= len(data)
    return data[:position] + bytes((data[position] ^ 0xFF,)) + data[position + 1 :]


# Connections


class Instant(WireFault[P]):
    """Happens at once, to the existing connections."""

    def __init__(self, owner: Owner[P], text: str, client: str | None, act: Callable[[FaultLayer], object]) -> None:
        """`act` returns False when it does nothing."""
        super().__init__(owner, text, client)
        self._act = act

    def begin(self, network: Network, hooks: Hooks) -> None:
        for layer in network:
            if self.concerns(layer) and not layer.over and self._act(layer) is not False:
                self.count()


class CutAfterBytes(WireFault[P]):
    """Resets a connection when `size` more bytes have passed."""

    def __init__(
        self, owner: Owner[P], text: str, client: str | None, directions: Sequence[Direction], size: int, times: int
    ) -> None:
        super().__init__(owner, text, client, times)
        self._directions = directions
        self._size = size
        self._passed: dict[FaultLayer, int] = {}

    def allows(self, layer: FaultLayer, direction: Direction, size: int) -> int | None:
        if direction not in self._directions:
            return None
        passed = self._passed.pop(layer, 0)
        if passed + size < self._size:
            self._passed[layer] = passed + size
            return None
        self.count()
        return self._size - passed


class Hold(WireFault[P]):
    """A state of connections: in some directions nothing goes on, or single bytes."""

    def __init__(
        self,
        owner: Owner[P],
        text: str,
        client: str | None,
        *,
        stops: Sequence[Direction] = (),
        drips: dict[Direction, float] | None = None,
        hides_end: bool = False,
    ) -> None:
        super().__init__(owner, text, client)
        self.stops = frozenset(stops)
        self.drips = drips or {}
        self.hides_end = hides_end

    def began(self, layer: FaultLayer) -> None:
        self.count()
