"""Work in a forked child."""

from __future__ import annotations

import os
import time
import traceback
import warnings
from collections.abc import Callable

DEADLINE = 20.0  # seconds


def in_child(work: Callable[[], object]) -> Callable[[], bool]:
    """Fork; return a function that waits and says whether the child's work went well."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: fork with threads, which is the point of the tests
        child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def joined() -> bool:
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return status == 0
            time.sleep(0.005)
        os.kill(child, 9)
        os.waitpid(child, 0)
        return False

    return joined
