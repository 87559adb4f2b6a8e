from trunkline.streams.watched import Watched


def test_those_who_wait_are_called_once_and_may_wait_again_meanwhile() -> None:
    watched, called = Watched(), list[str]()

    def again() -> None:
        called.append("again")
        watched.watch(again)

    watched.watch(again)
    watched.watch(lambda: called.append("once"))
    watched.watch(called.clear)
    watched.unwatch(called.clear)
    watched.wake()
    assert called == ["again", "once"]
    watched.wake()
    assert called == ["again", "once", "again"]
