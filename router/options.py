"""The options of a subscription."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one subscription, as the SUBSCRIBE packet has them."""

    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    #: 0: send retained messages; 1: only for a new subscription; 2: never.
    retain_handling: int = 0
    identifier: int | None = None


_shared: dict[Options, Options] = {}


def intern_options(options: Options) -> Options:
    """One object for all subscriptions with the same options: a million of them share a few dozen.

    Options with an identifier are as many as clients make up, so they are not kept here.
    """
    if options.identifier is not None:
        return options
    return _shared.setdefault(options, options)
