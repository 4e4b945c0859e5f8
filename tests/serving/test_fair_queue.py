"""The order in which waiting work is handed out, and what may enter the line: without threads and without clocks."""

from collections import Counter
from typing import Any

import numpy as np

from beamtree.serving.fair_queue import FairQueue, WaitingCall


def call(connection: Any, *works: float, key: Any = "model") -> WaitingCall:
    return WaitingCall(connection=connection, key=key, works=works)


def line_of(*calls: WaitingCall) -> FairQueue[WaitingCall]:
    line: FairQueue[WaitingCall] = FairQueue()
    for one in calls:
        line.add(one)
    return line


def take(line: FairQueue[WaitingCall], most: float = 1.0) -> list[tuple[Any, int, int]]:
    """Connection, first part and end of each slice."""
    return [(one.call.connection, one.first, one.end) for one in line.take(most)]


def order(line: FairQueue[WaitingCall]) -> str:
    """Whose part came when, one letter each."""
    taken = ""
    while len(line):
        taken += "".join(connection * (end - first) for connection, first, end in take(line))
    return taken


def test_large_calls_take_turns_part_by_part() -> None:
    assert order(line_of(call("a", 8, 8, 8), call("b", 8, 8, 8), call("c", 8))) == "abcabab"


def test_little_work_does_not_wait_for_what_others_have_asked_for() -> None:
    line = line_of(*(call(heavy, *[8.0] * 64) for heavy in "abcd"))
    for _ in range(20):
        take(line)
        line.add(call("light", 1))
        assert take(line) == [("light", 0, 1)]


def test_calls_of_one_connection_come_one_after_the_other() -> None:
    line = line_of(call("a", 1, 1), call("a", 1), call("b", 1, 1, 1))
    assert order(line) == "ababab"


def test_each_connection_gets_the_same_work_whatever_the_size_of_its_parts() -> None:
    line = line_of(call("a", *[9.0] * 100), call("b", *[1.0] * 900), call("c", *[3.0] * 300))
    done = dict.fromkeys("abc", 0.0)
    for _ in range(300):
        for one in line.take(1.0):
            done[str(one.call.connection)] += one.work
        assert max(done.values()) - min(done.values()) <= 18


def test_a_stream_of_new_connections_does_not_starve_a_large_call() -> None:
    large = call("large", *[8.0] * 5)
    line = line_of(large, *(call(f"first {number}", 1) for number in range(3)))
    served = 0
    while large.begun < 5:
        line.add(call(f"new {served}", 1))
        served += len(take(line))
        assert served <= 2000


def test_parts_with_one_key_are_taken_together_up_to_a_bound() -> None:
    line = line_of(call("a", 1, 1), call("b", 1), call("c", 1, key="other"), call("d", 1, key=None), call("e", 2))
    assert take(line, most=4.0) == [("a", 0, 1), ("b", 0, 1)]
    assert take(line, most=4.0) == [("c", 0, 1)]
    assert take(line, most=4.0) == [("d", 0, 1)]
    assert take(line, most=4.0) == [("a", 1, 2), ("e", 0, 1)]
    line = line_of(call("a", 3, 3, 3), call("b", 8))
    assert take(line, most=6.0) == [("a", 0, 2)]
    assert (take(line, most=6.0), take(line, most=6.0)) == ([("b", 0, 1)], [("a", 2, 3)])


def test_a_full_line_takes_only_calls_that_ask_for_no_more_than_their_share() -> None:
    line = line_of()
    assert not line.is_full_for(1000.0, room=12.0)
    line.add(call("heavy", *[8.0] * 10))
    assert line.is_full_for(6.1, room=12.0)
    assert not line.is_full_for(6.0, room=12.0)
    for number in range(11):
        assert not line.is_full_for(1.0, room=12.0)
        line.add(call(number, 1))
    assert line.is_full_for(1.0, room=12.0)
    assert not line.is_full_for(1.0, room=13.0)
    assert line_of().is_full_for(1.0, room=0.0)


def test_what_is_discarded_is_never_taken() -> None:
    first, second, third = call("a", 1, 2, 4), call("a", 1), call("b", 1)
    line = line_of(first, second, third)
    assert (len(line), line.work) == (3, 9.0)
    assert take(line) == [("a", 0, 1)]
    line.discard(first)
    line.discard(first)
    assert (len(line), line.work) == (2, 2.0)
    assert order(line) == "ba"
    line.discard(third)
    assert (len(line), line.work) == (0, 0.0)


def test_every_part_is_taken_once_in_order_and_no_connection_is_remembered_for_ever() -> None:
    generator = np.random.default_rng(0)
    line, waiting, taken = line_of(), {}, Counter[WaitingCall]()
    for number in range(3000):
        one = call(number, *generator.integers(1, 9, size=generator.integers(1, 4)).astype(float))
        waiting[one] = len(one.works)
        line.add(one)
        for part in line.take(float(generator.integers(1, 20))):
            assert part.first == taken[part.call]
            taken[part.call] = part.end
        assert len(line._given) <= 2 * len(line) + 100
    while len(line):
        for part in line.take(4.0):
            assert part.first == taken[part.call]
            taken[part.call] = part.end
    assert taken == waiting
