"""The cost of routing: `python bench/router.py [--quick]`. One line a figure."""

import argparse
import gc
import itertools
import random
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from trunkline.mqtt.message import Message
from trunkline.router import Options, RetainedStore, Router, ShareStrategy


class Client:
    __slots__ = ("client_id", "online")

    durable = False

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.online = True


def report(name: str, value: float, unit: str) -> None:
    print(f"{name:<72} {value:>12,.{0 if value >= 100 else 2}f} {unit}", flush=True)


def each(function: Callable[[str], object], arguments: Iterable[str]) -> float:
    """Nanoseconds a call."""
    arguments = list(arguments)
    gc.collect()
    gc.disable()
    start = time.perf_counter()
    for argument in arguments:
        function(argument)
    elapsed = time.perf_counter() - start
    gc.enable()
    return elapsed / len(arguments) * 1e9


def resident() -> int:
    """Bytes in memory, as the system sees it."""
    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def exact(number: int) -> str:
    return f"site/{number % 1000}/device/{number}/command"


def wildcard(number: int) -> str:
    return f"site/{number % 1000}/device/{number}/+"


def deep(number: int) -> str:
    return f"site/{number % 1000}/device/{number}/+/set"


def tail(number: int) -> str:
    return f"device/{number}/#"


def mixed(number: int) -> str:
    return (exact, wildcard, tail, exact)[number % 4](number)


def load(router: Router[Client], make: Callable[[int], str], count: int) -> list[tuple[Client, str]]:
    options = Options(qos=1)
    pairs = [(Client(f"client{number}"), make(number)) for number in range(count)]
    for client, filter in pairs:
        router.subscribe(client, filter, options)
    return pairs


def matching(count: int) -> None:
    chance = random.Random(1)
    for make in (exact, wildcard, mixed):
        router: Router[Client] = Router()
        load(router, make, count)
        known = [exact(chance.randrange(count)) for _ in range(20_000)]
        unknown = [f"site/{number % 1000}/nothing/{number}/here" for number in range(20_000)]
        name = f"{count:>9,} {make.__name__} subscriptions:"
        report(f"{name} match, resolved", each(router._resolve, known), "ns")  # pyright: ignore[reportPrivateUsage]
        report(f"{name} match, resolved, nobody", each(router._resolve, unknown), "ns")  # pyright: ignore[reportPrivateUsage]
        report(f"{name} match, resolved and remembered", each(router.match, known), "ns")
        hot = known[:1000]
        each(router.match, hot)
        report(f"{name} match, known topic", each(router.match, hot * 50), "ns")
        each(router.match, unknown[:1000])
        report(f"{name} match, known topic, nobody", each(router.match, unknown[:1000] * 50), "ns")


def churn(count: int) -> None:
    for make in (exact, wildcard, tail):
        churn_of(make, count)
    router: Router[Client] = Router()
    load(router, wildcard, count)
    hot = [exact(number) for number in range(1000)]
    each(router.match, hot)
    client = Client("c")
    events = itertools.count(count)

    def change_then_match(topic: str) -> None:
        filter = wildcard(next(events))
        router.subscribe(client, filter, Options())
        router.unsubscribe(client, filter)
        router.match(topic)

    name = f"{count:>9,} wildcard subscriptions:"
    report(f"{name} subscribe, unsubscribe, match of 1,000 hot topics", each(change_then_match, hot * 20), "ns")


def churn_of(make: Callable[[int], str], count: int) -> None:
    router: Router[Client] = Router()
    load(router, make, count)
    client, options = Client("c"), Options()
    for number in range(20_000):
        router.match(exact(number))
    new = [make(count + number) for number in range(20_000)]
    name = f"{count:>9,} {make.__name__} subscriptions, 20,000 topics known:"
    cost = each(lambda filter: router.subscribe(client, filter, options), new)
    report(f"{name} subscribe", 1e9 / cost, "a second")
    cost = each(lambda filter: router.unsubscribe(client, filter), new)
    report(f"{name} unsubscribe", 1e9 / cost, "a second")


def device_shared(number: int) -> str:
    return f"$share/g/{exact(number)}"


def ten_a_group(number: int) -> str:
    return f"$share/g/{exact(number // 10)}"


def ten_a_filter(number: int) -> str:
    return exact(number // 10)


def news(number: int) -> str:
    return "news"


def all_news(number: int) -> str:
    return "news/#"


def shared_news(number: int) -> str:
    return "$share/g/news"


def size(count: int) -> None:
    kinds: list[tuple[str, Callable[[int], str], bool]] = [
        ("exact", exact, False),
        ("exact, identifier", exact, True),
        ("exact, ten a filter", ten_a_filter, False),
        ("exact, all on one filter", news, False),
        ("wildcard a/1/b/2/+", wildcard, False),
        ("wildcard a/1/b/2/+/c", deep, False),
        ("wildcard a/1/#", tail, False),
        ("wildcard, all on one filter", all_news, False),
        ("shared, groups of one", device_shared, False),
        ("shared, groups of 10", ten_a_group, False),
        ("shared, one group", shared_news, False),
    ]
    # Each in a fresh process: memory that was used before and is free again would hide what is needed.
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        for name, make, identified in kinds:
            text, beside = pool.submit(size_of, make, identified, count).result()
            report(f"{count:>9,} {name}: beside the filter's text ({text:.0f} bytes)", beside, "bytes each")


def size_of(make: Callable[[int], str], identified: bool, count: int) -> tuple[float, float]:
    router: Router[Client] = Router()
    clients = [Client(f"client{number}") for number in range(count)]
    start = resident()
    filters = [make(number) for number in range(count)]
    before = resident()
    for number, (client, filter) in enumerate(zip(clients, filters, strict=True)):
        router.subscribe(client, filter, Options(qos=1, identifier=number if identified else None))
    return (before - start) / count, (resident() - before) / count


def fanning(count: int) -> None:
    router: Router[Client] = Router()
    for number in range(count):
        router.subscribe(Client(f"client{number}"), "news/#", Options())
        router.subscribe(Client(f"other{number}"), "news/+", Options())
    topics = [f"news/{number}" for number in range(2000)]
    report(f"{2 * count:>9,} subscribers of two filters: first match", each(router.match, topics[:1]), "ns")
    report(f"{2 * count:>9,} subscribers of two filters: each other topic", each(router.match, topics[1:]), "ns")


def groups(count: int) -> None:
    for strategy in ShareStrategy:
        picks(strategy, count)


def picks(strategy: ShareStrategy, count: int) -> None:
    router: Router[Client] = Router(strategy=strategy, seed=1)
    clients = [Client(f"client{number}") for number in range(count)]
    for client in clients:
        router.subscribe(client, "$share/g/a", Options())
    group = router.match("a").groups[0]
    name = f"{count:>9,} members, {strategy}:"
    topics = [f"topic/{number}" for number in range(2000)]
    report(f"{name} pick", each(lambda topic: group.pick(topic, topic), topics), "ns")
    for client in clients[: count // 2]:
        client.online = False
    report(f"{name} pick, half offline", each(lambda topic: group.pick(topic, topic), topics), "ns")
    for client in clients:
        client.online = False
    report(f"{name} pick, all offline", each(lambda topic: group.pick(topic, topic), topics[:100]), "ns")


def retained(count: int) -> None:
    store = RetainedStore()
    chance = random.Random(2)
    message = [Message(exact(number), b"payload") for number in range(count)]
    before = resident()
    start = time.perf_counter()
    for each_message in message:
        store.store(each_message, 0.0)
    report(f"{count:>9,} retained: store", (time.perf_counter() - start) / count * 1e9, "ns")
    report(f"{count:>9,} retained: index beside the message", (resident() - before) / count, "bytes each")
    some = [exact(chance.randrange(count)) for _ in range(1000)]

    def run(filter: str) -> int:
        return sum(1 for each in store.match(filter, 0.0) if each)

    report(f"{count:>9,} retained: match of one topic", each(run, some), "ns")
    report(
        f"{count:>9,} retained: match of site/1/device/2/+",
        each(run, [t.removesuffix("command") + "+" for t in some]),
        "ns",
    )
    report(f"{count:>9,} retained: match of +/1/#, a message", each(run, ["+/1/#"]) / (count / 1000), "ns")
    report(f"{count:>9,} retained: match of #, a message", each(run, ["#"]) / count, "ns")
    report(f"{count:>9,} retained: match of +/+/+/+/nothing, a topic", each(run, ["+/+/+/+/nothing"]) / count, "ns")
    cost = each(lambda topic: store.page(0.0, after=topic, limit=100), some)
    report(f"{count:>9,} retained: page of 100", cost / 1000, "us")

    flat = RetainedStore()
    for number in range(count):
        flat.store(Message(f"flat{number}", b"x", expires_at=1.0), 0.0)
    report(
        f"{count:>9,} retained, flat: pages of 1,000, the longest", max(stalls(flat.match("#", 0.0), 1000)) * 1e3, "ms"
    )
    worst, swept = 0.0, True
    while swept:
        start = time.perf_counter()
        swept = bool(flat.sweep(2.0, 1000))
        worst = max(worst, time.perf_counter() - start)
    report(f"{count:>9,} retained, flat: sweep of 1,000, the longest", worst * 1e3, "ms")


def stalls(messages: Iterator[Message], page: int) -> Iterator[float]:
    while True:
        start = time.perf_counter()
        got = list(itertools.islice(messages, page))
        if not got:
            return
        yield time.perf_counter() - start


def worst_cases(depth_limit: int) -> None:
    def resolved(name: str, router: Router[Client], topic: str) -> None:
        start = time.perf_counter()
        router.match(topic)
        report(name, (time.perf_counter() - start) * 1e6, "us")

    client = Client("c")
    router: Router[Client] = Router()
    for depth in range(1, depth_limit):
        router.subscribe(client, "+/" * depth + "#", Options())
    resolved("+/…/# of every depth, one subscriber, topic of 128 levels", router, "/".join("a" * depth_limit))
    router = Router()
    for depth in range(1, depth_limit):
        router.subscribe(client, "+/" * depth + "#", Options())
        for other in range(depth):
            router.subscribe(client, "+/" * other + "a" + "/+" * (depth - other), Options())
    resolved("8,000 filters of + and one a, all beginnings match, 128 levels", router, "/".join("a" * depth_limit))
    router = Router()
    for bits in range(1 << 16):
        filter = "/".join("+" if bits >> place & 1 else "a" for place in range(16))
        router.subscribe(client, f"{filter}/b", Options())
    resolved("65,536 filters of 17 levels whose first 16 match and the last does not", router, "a/" * 16 + "c")
    store = RetainedStore()
    for number in range(1000):
        store.store(Message("/".join([str(number), *"a" * (depth_limit - 1)]), b"x"), 0.0)
    start = time.perf_counter()
    found = sum(1 for each in store.match("+/" * (depth_limit - 1) + "b", 0.0) if each)
    assert not found
    report("1,000 retained topics of 128 levels against +/…/+/b", (time.perf_counter() - start) * 1e6, "us")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="no more than 100,000 subscriptions")
    parser.add_argument("part", nargs="*", help="matching, churn, size, fanning, groups, retained, worst")
    arguments = parser.parse_args()
    top = 100_000 if arguments.quick else 1_000_000
    parts: dict[str, tuple[Callable[[int], None], tuple[int, ...]]] = {
        "matching": (matching, (1000, 100_000, 1_000_000)),
        "churn": (churn, (100_000, 1_000_000)),
        "size": (size, (top,)),
        "fanning": (fanning, (10_000,)),
        "groups": (groups, (10, 10_000)),
        "retained": (retained, (100_000,)),
        "worst": (worst_cases, (128,)),
    }
    for name in arguments.part or parts:
        part, counts = parts[name]
        for count in counts:
            if count <= top:
                part(count)


if __name__ == "__main__":
    main()
