import os
import signal
import threading

import pytest

from beamtree.training.interrupt import stop_requests


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_sets_the_flag_and_a_second_one_stops_at_once(number: signal.Signals) -> None:
    with stop_requests() as should_stop:
        assert not should_stop()
        os.kill(os.getpid(), number)
        assert should_stop()
        with pytest.raises(KeyboardInterrupt, match=number.name):
            os.kill(os.getpid(), number)


def test_afterwards_signals_do_what_they_did_before() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with stop_requests():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_an_error_inside_gives_the_signals_back_too() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError), stop_requests():
        _ = 1 / 0
    assert signal.getsignal(signal.SIGINT) == before


def test_in_another_thread_nobody_is_asked_to_stop() -> None:
    answers: list[bool] = []

    def ask() -> None:
        with stop_requests() as should_stop:
            answers.append(should_stop())

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert answers == [False]
