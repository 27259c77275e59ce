# SPDX-License-Identifier: Apache-2.0
"""The clock that ends a run, and the learning rate that follows it."""

from __future__ import annotations

import math
import time

_WARM_UP_STEPS = 200
_FINAL_RATE = 0.03  # of the peak


def learning_rate(peak: float, step: int, fraction: float) -> float:
    """Linear warm-up by steps, times a cosine over the fraction of the time that is spent."""
    warm_up = min(1.0, (step + 1) / _WARM_UP_STEPS)
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, fraction)))
    return peak * warm_up * (_FINAL_RATE + (1 - _FINAL_RATE) * cosine)


class StepClock:
    """Adds up the seconds spent in steps."""

    def __init__(self) -> None:
        self.spent = 0.0
        self._last: float | None = None

    @property
    def running(self) -> bool:
        """Whether the next tick adds time."""
        return self._last is not None

    def tick(self) -> None:
        """Adds the time since the last tick, if the clock runs, and lets it run."""
        now = time.time()
        if self._last is not None:
            self.spent += now - self._last
        self._last = now

    def pause(self) -> None:
        """Forgets the time until the next tick."""
        self._last = None

    def skip(self) -> None:
        """Forgets the time until now."""
        self._last = time.time()
