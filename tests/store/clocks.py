"""The clocks of a machine that a test sets."""

from collections.abc import Callable

from trunkline.store.clock import StoreClock


class Clocks:
    """True time is what the test says; the system's clock may be wrong, and the machine be started anew."""

    def __init__(self, true_time: Callable[[], float], wrong_by: float = 0.0) -> None:
        self._true_time = true_time
        self.wrong_by = self._began_wrong_by = wrong_by
        self._boots = 1
        self._booted_at = -500.0

    def start_anew(self) -> None:
        self._boots += 1
        self._booted_at = self._true_time() - 5.0

    def process(self) -> "Clocks":
        """A process begins, which counts corrections from now on."""
        self._began_wrong_by = self.wrong_by
        return self

    def calendar(self) -> float:
        return self._true_time() + self.wrong_by

    def boot(self) -> tuple[str, float]:
        return f"boot {self._boots}", self._true_time() - self._booted_at

    def correction(self) -> float:
        return self.wrong_by - self._began_wrong_by


def clock_at(epoch: float) -> StoreClock:
    """Node time 0 is this moment."""
    return StoreClock(Clocks(lambda: epoch), 0.0)
