"""The chains of callbacks, one a point, and how they run.

A point's callbacks are a tuple in an attribute of `Hooks`, so that a place in the message flow where nobody is
registered costs one truth test:

    if hooks.message_publish:
        result = hooks.transform(MESSAGE_PUBLISH, client, message)

Messages that came together go through as one publication (`trunkline.mqtt.publication`). A callback gets single
messages, unless it is registered as one that takes publications: then it is called once for all of them. As long as all
callbacks of a point take publications nothing is unfolded; otherwise all of them get the messages one by one.

Registering builds a new tuple; a chain that is running goes on with the one it began with. A chain that awaits a
callback goes on with those that are registered afterwards, behind the turn of that one.

A callback that raises does not hurt the caller. Deciders fail closed: a crash denies. In any other chain the next
callback is asked, with the value as it was.
"""

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from inspect import isawaitable, iscoroutine
from itertools import count
from operator import attrgetter
from typing import Any, TypeVar, TypeVarTuple, Unpack, cast

from trunkline.hooks.client import ClientInfo
from trunkline.hooks.decisions import STOP, Deny, Stop, Withhold
from trunkline.hooks.points import POINTS, Decide, Notify, Point, Transform, find
from trunkline.hooks.registration import Callback, Registering, Registration, RegistrationOptions
from trunkline.mqtt.explanations import worth_logging
from trunkline.mqtt.reasons import Reason

T = TypeVar("T")
D = TypeVar("D")
Ts = TypeVarTuple("Ts")

Chain = tuple[Callable[..., Any], ...]

_logger = logging.getLogger("trunkline.hooks")
#: Exceptions that count as a crash, except for those that `is_crash` excludes.
CRASHES = (BaseException,)
#: The answer when a decider crashes. It does not describe the error, which does not concern the client.
CRASHED = Deny(Reason.NOT_AUTHORIZED)
_turn = attrgetter("turn")


class Hooks(Registering):
    """The callbacks of one node."""

    client_connect: Chain
    client_authenticate: Chain
    client_enhanced_authenticate: Chain
    client_authenticated: Chain
    client_connack: Chain
    client_connected: Chain
    client_disconnected: Chain
    client_check_acl: Chain
    client_acl_decided: Chain
    client_read_filter: Chain
    client_subscribe: Chain
    client_unsubscribe: Chain
    session_created: Chain
    session_resumed: Chain
    session_discarded: Chain
    session_taken_over: Chain
    session_terminated: Chain
    session_subscribed: Chain
    session_unsubscribed: Chain
    message_publish: Chain
    message_routed: Chain
    message_deliver: Chain
    message_queued: Chain
    message_delivered: Chain
    message_acked: Chain
    message_dropped: Chain
    delivery_completed: Chain
    alarm_activated: Chain
    alarm_deactivated: Chain

    def __init__(self) -> None:
        self._chains: dict[Point, Chain] = {}
        #: In their order. A change makes a new tuple.
        self._registered: dict[Point, tuple[Registration, ...]] = dict.fromkeys(POINTS, ())
        self._ranks = count()
        self._async: set[Point] = set()
        #: Points that may get publications, and have a callback that takes single messages.
        self.single: set[Point] = set()
        #: Grows with each registration and removal. A decision cached before is no longer valid.
        self.generation = 0
        #: Called with each exception that a callback raises. It must not raise.
        self.on_crash: Callable[[BaseException], object] | None = None
        for point in POINTS:
            self._rebuild(point)

    # Registering

    def add(self, point: Point | str, callback: Callback, **options: Unpack[RegistrationOptions]) -> bool:
        """Register a callback; False when it is registered at this point already.

        Raises:
            LookupError: no such point.
            HookError: the callback cannot be called as the point calls it, or is async where the point cannot wait.
        """
        if isinstance(point, str):
            point = find(point)
        registration = Registration(point, callback, **options)
        if self._find(point, callback) is not None:
            return False
        self.exchange((), [registration])
        return True

    def remove(self, point: Point | str, callback: Callback) -> bool:
        """Remove a callback; False if it is not registered."""
        registration = self._find(find(point) if isinstance(point, str) else point, callback)
        if registration is None:
            return False
        self.exchange([registration], ())
        return True

    def exchange(self, former: Iterable[Registration], new: Iterable[Registration]) -> None:
        """Put callbacks into the places of others, in one step: the first at a point has the turn of the first one
        there, and so on. Those without such a place run behind all of the same priority."""
        former, new = list(former), list(new)
        for point in dict.fromkeys(registration.point for registration in (*former, *new)):
            going = [each for each in former if each.point is point]
            coming = [each for each in new if each.point is point]
            for place, registration in enumerate(coming):
                registration.rank = next(self._ranks)
                if place < len(going) and registration.priority == going[place].priority:
                    registration.rank = going[place].rank
            stays = [each for each in self._registered[point] if each not in going]
            self._registered[point] = tuple(sorted([*stays, *coming], key=_turn))
            self._rebuild(point)

    def _find(self, point: Point, callback: Callback) -> Registration | None:
        return next((each for each in self._registered[point] if each.callback == callback), None)

    def listing(self, point: Point | str | None = None) -> list[Registration]:
        """The registered callbacks, in the order in which they run."""
        if point is None:
            return [registration for registered in self._registered.values() for registration in registered]
        return list(self._registered[find(point) if isinstance(point, str) else point])

    def is_async(self, point: Point) -> bool:
        """Whether any callback there is async: then the point is run by an awaiting runner, else by a plain one."""
        return point in self._async

    def _rebuild(self, point: Point) -> None:
        registered = self._registered[point]
        chain = tuple(registration.call for registration in registered)
        self._chains[point] = chain
        setattr(self, point.attribute, chain)
        self._async.discard(point)
        if any(registration.is_async for registration in registered):
            self._async.add(point)
        self.single.discard(point)
        if point.publication is not None and not all(entry.publications for entry in registered):
            self.single.add(point)
        self.generation += 1

    # Running

    def notify(self, point: Notify[*Ts], *args: *Ts) -> None:
        """Notify the callbacks."""
        if point in self.single:
            assert point.publication is not None
            publication: Any = args[point.publication]
            if publication.count > 1:
                each: list[Any] = list(args)
                for message in publication.messages:
                    each[point.publication] = message
                    self.notify(point, *cast("tuple[*Ts]", each))
                return
        for callback in self._chains[point]:
            try:
                result = callback(*args)
                if result is not None:
                    if result is STOP or type(result) is Stop:
                        return
                    if iscoroutine(result):
                        raise _misplaced(result)
            except CRASHES as error:
                self._crashed(point, callback, error)

    def transform(self, point: Transform[T, *Ts], client: object, value: T, *rest: *Ts) -> T | Deny | Withhold:
        """The value as the callbacks leave it, or the answer of the callback that ended the chain."""
        for callback in self._chains[point]:
            try:
                result = callback(client, value, *rest)
                if result is None:
                    continue
                if result is STOP:
                    return value
                stop = type(result) is Stop
                if stop:
                    result = result.value
                if type(result) is Deny or type(result) is Withhold:
                    return result
                if iscoroutine(result):
                    raise _misplaced(result)
                value = point.replace(value, result)
            except CRASHES as error:
                self._crashed(point, callback, error)
            else:
                if stop:
                    return value
        return value

    def decide(self, point: Decide[D, *Ts], *args: *Ts) -> D | Deny | None:
        """The first decision, or None when every callback passes. Nothing can wait here, so reaching an async callback
        denies."""
        if point in self._async:
            registered = self._registered[point]
            return self._decide([_deny if entry.is_async else entry.call for entry in registered], point, *args)
        return self._decide(self._chains[point], point, *args)

    def _decide(self, chain: Iterable[Callback], point: Decide[D, *Ts], *args: *Ts) -> D | Deny | None:
        for callback in chain:
            try:
                result = callback(*args)
                if result is None:
                    continue
                if result is STOP:
                    return None
                if iscoroutine(result):
                    raise _misplaced(result)
                return _decision(point, result)
            except CRASHES as error:
                self._crashed(point, callback, error)
                return CRASHED
        return None

    def decide_without_async(self, point: Decide[D, *Ts], *args: *Ts) -> D | Deny | None:
        """`decide` by the plain callbacks alone, for a question that async callbacks need not answer."""
        registered = self._registered[point]
        return self._decide([entry.call for entry in registered if not entry.is_async], point, *args)

    async def transform_async(
        self, point: Transform[T, *Ts], client: object, value: T, *rest: *Ts
    ) -> T | Deny | Withhold:
        """`transform` that awaits async callbacks. It needs no particular event loop."""
        for entry in self._in_turn(point):
            try:
                result = entry.call(client, value, *rest)
                if result is None:
                    continue
                if isawaitable(result):
                    result = await entry.answer(result)
                    if result is None:
                        continue
                if result is STOP:
                    return value
                stop = type(result) is Stop
                if stop:
                    result = result.value
                if type(result) is Deny or type(result) is Withhold:
                    return result
                value = point.replace(value, result)
            except CRASHES as error:
                self._crashed(point, entry.call, error)
            else:
                if stop:
                    return value
        return value

    async def decide_async(self, point: Decide[D, *Ts], *args: *Ts) -> D | Deny | None:
        """`decide` that awaits async callbacks."""
        return await self._decide_async(self._in_turn(point), point, *args)

    async def decide_login(self, point: Decide[D, ClientInfo, T], client: ClientInfo, proof: T) -> D | Deny | None:
        """`decide_async` for a login. Where the client's listener names authenticators, they alone can let it in, in
        that order; callbacks that are no authenticators can deny before them."""
        names = client.authenticators
        if names is None:
            return await self.decide_async(point, client, proof)
        for name in ("", *names):
            for entry in self._in_turn(point):
                if entry.authenticator == name:
                    decision = await self._decide_async((entry,), point, client, proof)
                    if decision is not None and (name or isinstance(decision, Deny)):
                        return decision
        return None

    def _in_turn(self, point: Point) -> Iterator[Registration]:
        """The callbacks one by one, for a run that awaits them: what is registered may change meanwhile."""
        registered, place = self._registered[point], 0
        while place < len(registered):
            entry = registered[place]
            yield entry
            place += 1
            if self._registered[point] is not registered:
                registered = self._registered[point]
                place = bisect_right(registered, entry.turn, key=_turn)

    async def _decide_async(
        self, entries: Iterable[Registration], point: Decide[D, *Ts], *args: *Ts
    ) -> D | Deny | None:
        for entry in entries:
            try:
                result = entry.call(*args)
                if isawaitable(result):
                    result = await entry.answer(result)
                if result is None:
                    continue
                if result is STOP:
                    return None
                return _decision(point, result)
            except CRASHES as error:
                self._crashed(point, entry.call, error)
                return CRASHED
        return None

    def _crashed(self, point: Point, callback: Callback, error: BaseException) -> None:
        if not is_crash(error):
            raise error
        if self.on_crash is not None:
            self.on_crash(error)
        registration = next((entry for entry in self._registered[point] if entry.call == callback), None)
        if registration is None:  # it was removed while it ran
            _logger.error("a removed callback at %s crashed", point.name, exc_info=error)
            return
        registration.crashes += 1
        count = registration.crashes
        if worth_logging(count):
            _logger.error("%s at %s crashed (%d so far)", registration.name, point.name, count, exc_info=error)


def is_crash(error: BaseException) -> bool:
    """Whether the exception is a callback's own, or a group of only such. `sys.exit()` must not end the broker, but
    Ctrl-C may; and the event loop's cancellation is not the callback's. (This package does not import an event loop:
    the exception is recognised by its name.)"""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_crash, error.exceptions))  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
    return not isinstance(error, KeyboardInterrupt | GeneratorExit) and type(error).__name__ != "Cancelled"


def _deny(*_: object) -> Deny:
    return CRASHED


def _decision(point: Decide[D, *Ts], result: object) -> D:
    if isinstance(result, Stop):  # a decision ends the chain anyway
        result = cast("Stop[object]", result).value
    if not isinstance(result, point.answers):
        answers = ", ".join("ALLOW" if kind.__name__ == "Allow" else kind.__name__ for kind in point.answers)
        raise TypeError(f"returned {result!r:.80}; at {point.name} a callback answers None, {answers}")
    return cast("D", result)


def _misplaced(result: Any) -> TypeError:
    result.close()
    return TypeError("returned a coroutine: register an `async def` function, so that the broker knows to wait for it")
