"""The effect on a quiet client of another that attacks the broker: `python -m bench.attacks --help`.

The canary is a pair of clients that exchange 200 messages a second; its round trip is measured from the time at which a
message was due. Beside it one attack after the other runs against a broker of its own, with the broker's defaults.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from bench.attackers import ATTACKS, Attack, Client, connect
from bench.command import attempt, chosen, options, pinned, shown, write_results
from bench.paced import Account, Station, Usage, clock, conduct
from bench.peers import Peer, Running, running, watched
from bench.wire import Refused
from trunkline.hooks.passwords import set_password

RATE: Final = 200.0  # messages a second of the canary
VICTIM: Final = 10_000.0  # messages a second of the publisher that attackers want to hold
LOGIN: Final = 0.1  # s between two logins
BAR: Final = 50.0  # ms, the 99.9th percentile
PASSWORD: Final = "right horse"


class Canary(Station):
    patience = 3.0

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address)
        self.pair("canary", 0, RATE, self.account("canary"))


class Victim(Station):
    """A publisher whose subscribers are attackers and one that reads."""

    patience = 3.0

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address)
        self.pair("victim", 1, VICTIM, self.account("victim"))


class Visitor(Station):
    """Logs in again and again, with the right password, and goes."""

    def run(self, edges: Sequence[int]) -> None:
        self.edges += edges
        account: Account = self.account("logins")
        self.begin()
        while (due := clock()) < edges[-1]:
            account.sent[account.phase(due)] += 1
            try:
                Client(self.address, connect("visitor", login=("visitor", PASSWORD))).close()
            except (OSError, Refused):
                continue
            account.record(clock(), due)
            time.sleep(LOGIN)


BESIDE: Final[dict[str, Callable[[tuple[str, int]], Station]]] = {"pressure": Victim, "logins": Visitor}


@dataclass(frozen=True, slots=True)
class Attacked:
    """Times in milliseconds."""

    attack: str
    p50: float | None
    p99: float | None
    p999: float | None
    max: float | None
    late: float | None  # of the generator itself, the 99.9th percentile
    lost: int  # of the canary
    turn: float | None  # the longest of the broker, in processor time; it is measured in Trunkline only
    memory_growth: int  # resident bytes, the most beyond what there was when the attack was prepared
    kept: tuple[int, int] | None  # of how many bystanders that many are still connected
    victim: float | None  # the share of its rate that a publisher kept
    login: float | None  # the 99th percentile of a login

    @property
    def met(self) -> bool:
        judged = not ATTACKS[self.attack].judged or (self.p999 is not None and self.p999 < BAR and not self.lost)
        return judged and (self.kept is None or self.kept[0] == self.kept[1])


def attacked(broker: Running, name: str, seconds: float, cores: Sequence[int]) -> Attacked:
    usage = Usage(broker)
    builds: list[Callable[[], Station]] = [partial(polite, ATTACKS[name], broker), partial(Canary, broker.address)]
    if name in BESIDE:
        builds.append(partial(BESIDE[name], broker.address))
    before = broker.memory()
    _, accounts = conduct(builds, [0.5, seconds], cores, usage)
    turn = broker.watched().get("longest_turn")
    canary, kept, victim, logins = (accounts.get(each) for each in ("canary", "kept", "victim", "logins"))
    assert canary is not None
    seen = canary.latencies[1]
    return Attacked(
        attack=name,
        p50=seen.quantile(0.5),
        p99=seen.quantile(0.99),
        p999=seen.quantile(0.999),
        max=seen.quantile(1.0),
        late=canary.late.quantile(0.999),
        lost=canary.lost,
        turn=turn and 1000 * turn,
        memory_growth=max((sample[2] for sample in usage.samples), default=before) - before,
        kept=(sum(kept.arrived), sum(kept.sent)) if kept else None,
        victim=victim.arrived[1] / (VICTIM * seconds) if victim else None,
        login=logins.latencies[1].quantile(0.99) if logins else None,
    )


def polite(attack: type[Attack], broker: Running) -> Attack:
    """The attacker shares a core with the canary, which goes first there."""
    os.nice(10)
    return attack(broker)


def configured(peer: Peer, attack: type[Attack], folder: Path) -> Peer | None:
    """The peer as it is installed; None where the attack needs settings that it does not know."""
    if peer.name != "trunkline":
        return None if attack.config else peer
    users = folder / "users"
    if attack.config:
        users.write_text(set_password(set_password("", "visitor", PASSWORD), "ann", "nobody guesses this"))
    return replace(watched(), config=attack.config.replace("{users}", str(users)).replace("{folder}", str(folder)))


HEADER: Final = (
    f"{'peer':<12}{'attack':<16}{'p50':>8}{'p99':>9}{'p99.9':>11}{'max':>11}{'gen.':>8}{'turn':>8}{'memory':>11}"
    f"  p99.9 < {BAR:g} ms"
)


def line(peer: str, rounds: list[Attacked]) -> str:
    notes = ["met" if all(each.met for each in rounds) else "MISSED"]
    last = rounds[-1]
    if any(each.lost for each in rounds):
        notes.append(f"the canary lost {sum(each.lost for each in rounds):,}")
    if last.kept is not None:
        notes.append(f"{last.kept[0]} of {last.kept[1]} bystanders stayed")
    if last.victim is not None:
        notes.append(f"the publisher kept {last.victim:.0%} of its rate")
    if last.login is not None:
        notes.append(f"a login took {last.login:,.0f} ms (p99)")
    return (
        f"{peer:<12}{last.attack:<16}{shown(each.p50 for each in rounds):>8}{shown(each.p99 for each in rounds):>9}"
        f"{shown(each.p999 for each in rounds):>11}{max((each.max or 0 for each in rounds), default=0):>11,.1f}"
        f"{shown(each.late for each in rounds):>8}{max((each.turn or 0 for each in rounds), default=0):>8,.1f}"
        f"{max(each.memory_growth for each in rounds) / 1e6:>8,.0f} MB  {', '.join(notes)}"
    )


def main() -> int:
    parser = options("attacks", "What a quiet client feels while another attacks the broker.", 10.0, 1)
    parser.add_argument("--attack", "-a", action="append", choices=list(ATTACKS), help="default: each")
    given = parser.parse_args()
    peers, (core, cores) = chosen(given), pinned(given)
    results: dict[tuple[str, str], list[Attacked]] = {}
    failures: list[str] = []
    print("\n".join(f"{name:<16}{attack.text}" for name, attack in ATTACKS.items()), end="\n\n", flush=True)
    print(HEADER, "-" * len(HEADER), sep="\n", flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-attacks-") as folder:
        for name in given.attack or ATTACKS:
            for peer in peers:
                ready = configured(peer, ATTACKS[name], Path(folder))
                if ready is None:
                    continue
                for _ in range(given.rounds):
                    with attempt(failures, f"{peer.name}, {name}"), running(ready, core) as broker:
                        outcome = attacked(broker, name, given.seconds, cores)
                        results.setdefault((peer.name, name), []).append(outcome)
                if (peer.name, name) in results:
                    print(line(peer.name, results[peer.name, name]), flush=True)
    print("\nMilliseconds from when a message was due, medians of the rounds. gen.: how late the generator itself was.")
    print("turn: the longest of the broker, in processor time.")
    print("memory: the most that the broker grew by since before the attack was prepared.", *failures, sep="\n")
    rows = [{"peer": name, "rounds": [asdict(each) for each in rounds]} for (name, _), rounds in results.items()]
    write_results(given, {"rows": rows, "failures": failures})
    return (
        1
        if failures or not all(each.met for (name, _), all_ in results.items() if name == "trunkline" for each in all_)
        else 0
    )


if __name__ == "__main__":
    sys.exit(main())
