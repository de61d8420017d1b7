import os
import threading
import time

import pytest

from convloom import settings
from convloom.runtime.build_once import BuildOnce
from convloom.runtime.thread_pool import ThreadPool, current_pool


def covered(pool, first, last):
    seen, lock = [], threading.Lock()

    def task(low, high):
        with lock:
            seen.extend(range(low, high))

    pool.run(task, first, last)
    return sorted(seen)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(("first", "last"), [(0, 0), (0, 1), (3, 5), (0, 7), (10, 1000)])
def test_each_block_runs_once(threads, first, last):
    assert covered(ThreadPool(threads), first, last) == list(range(first, last))


def test_threads_work_at_the_same_time():
    barrier = threading.Barrier(3, timeout=10)
    ThreadPool(3).run(lambda low, high: barrier.wait(), 0, 3)


def test_many_callers_share_one_pool():
    pool, failures = ThreadPool(4), []

    def call(seed):
        for step in range(30):
            last = seed * 13 + step
            if covered(pool, 0, last) != list(range(last)):
                failures.append((seed, step))

    callers = [threading.Thread(target=call, args=(seed,)) for seed in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert failures == []


@pytest.mark.parametrize("bad", [0, 50, 99])
def test_an_error_is_raised_after_the_helpers_stopped(bad):
    running = []

    def task(low, high):
        running.append(low)
        time.sleep(0.001)
        running.remove(low)
        if low <= bad < high:
            raise OSError("planted")

    pool = ThreadPool(4)
    with pytest.raises(OSError, match="planted"):
        pool.run(task, 0, 100)
    assert running == []
    assert covered(pool, 0, 10) == list(range(10))


def test_the_pool_follows_the_settings_and_is_kept():
    with settings.scoped(threads=3):
        pool = current_pool()
        assert pool.threads == 3
        assert current_pool() is pool
    with settings.scoped(threads=2):
        assert current_pool().threads == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_gets_threads_of_its_own():
    with settings.scoped(threads=2):
        current_pool().run(lambda low, high: None, 0, 10)
        child = os.fork()
        if child == 0:
            barrier = threading.Barrier(2, timeout=5)
            try:
                current_pool().run(lambda low, high: barrier.wait(), 0, 2)
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0


def test_build_once_shares_and_forgets_failures():
    table, calls, outcomes = BuildOnce(), [], []
    barrier = threading.Barrier(8)

    def make(key):
        calls.append(key)
        time.sleep(0.05)
        if key == "bad":
            raise ValueError(key)
        return key.upper()

    def ask(key):
        barrier.wait()
        try:
            outcomes.append(table.get(key, make))
        except ValueError:
            outcomes.append("failed")

    for key in ("good", "bad"):
        threads = [threading.Thread(target=ask, args=(key,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert outcomes == ["GOOD"] * 8 + ["failed"] * 8
    assert calls.count("good") == 1
    with pytest.raises(ValueError, match="bad"):
        table.get("bad", make)
    table.clear()
    table.get("good", make)
    assert calls.count("good") == 2
