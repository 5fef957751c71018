"""Several downloads at a time: what becomes of the others after a failure, and who tells."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from lockstep.onhost.core import errors
from lockstep.onhost.fetch import resumable_download


def test_after_a_failure_nothing_is_begun_and_it_is_what_is_raised(monkeypatch):
    started_numbers, is_cancelled = [], threading.Event()

    class Pool(ThreadPoolExecutor):
        def shutdown(self, *args, **options):
            super().shutdown(*args, **options)
            is_cancelled.set()

    def work(number):
        started_numbers.append(number)
        if number == 1:
            raise errors.Problem("lost")
        assert number == 0 or is_cancelled.wait(180)

    monkeypatch.setattr(resumable_download, "ThreadPoolExecutor", Pool)
    with pytest.raises(errors.Problem, match="lost"):
        resumable_download.work_through(work, range(9), 1)
    # What was under way ends by itself.
    assert started_numbers in ([0, 1], [0, 1, 2])
