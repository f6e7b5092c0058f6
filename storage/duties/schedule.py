"""The schedule of duties: a duty is due one period after it was last done, or if the clock was set back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from topicfs.storage.config.broker import EngineConfig
from topicfs.storage.model import Timestamp

REMOVAL_PERIOD_MS = 1_000
"""Period of the check for deleted files whose delay has passed."""


STAGED_WRITES_PERIOD_MS = 500
"""Period of the check for submitted writes of other processes, if no bell rings (`storage.staging.bell`)."""

SCRUB_PERIOD_MS, SCRUB_DELAY_MS = 60_000, 600_000
"""Time between two checks for a due scrub, and between the opening and the first check. The first check is late
because a start has other work.
"""

UNOPENED_PERIOD_MS = 500
"""Time between two checks of unopened partitions; each check covers some of them."""


class Duty(Enum):
    """Periodic work, in the order in which it is done when several duties are due."""

    FLUSH = "flush"
    STAGED_WRITES = "staged writes"
    UNOPENED = "opening of partitions with duties"
    RETENTION = "retention"
    CLEAN = "compaction"
    REMOVAL = "removal of deleted files"
    PRODUCERS = "expiry of producers"
    POSITIONS = "expiry of positions"
    RECOVERY_POINTS = "recovery point checkpoint"
    LOG_START_OFFSETS = "log start offset checkpoint"
    HIGH_WATERMARKS = "high watermark checkpoint"
    SCRUB = "scrub"


_LEADERS = {Duty.STAGED_WRITES, Duty.UNOPENED, Duty.RETENTION, Duty.CLEAN, Duty.POSITIONS}
"""The duties that change records. Followers do not do them, because their leader does."""


class Plan(NamedTuple):
    """The period of a duty, and its delay after opening."""

    period_ms: int
    delay_ms: int


def plan_duties(config: EngineConfig) -> dict[Duty, Plan]:
    delay = config.initial_task_delay_ms
    plans = {
        Duty.CLEAN: Plan(config.cleaner_backoff_ms, config.cleaner_backoff_ms),
        Duty.FLUSH: Plan(config.flush_check_interval_ms, delay),
        Duty.RETENTION: Plan(config.retention_check_interval_ms, delay),
        Duty.STAGED_WRITES: Plan(STAGED_WRITES_PERIOD_MS, 0),
        Duty.UNOPENED: Plan(UNOPENED_PERIOD_MS, delay),
        Duty.REMOVAL: Plan(REMOVAL_PERIOD_MS, 0),
        Duty.PRODUCERS: Plan(config.producer_id_check_interval_ms, config.producer_id_check_interval_ms),
        Duty.POSITIONS: Plan(
            config.offsets_retention_check_interval_ms, config.offsets_retention_check_interval_ms
        ),
        Duty.RECOVERY_POINTS: Plan(config.recovery_point_interval_ms, delay),
        Duty.LOG_START_OFFSETS: Plan(config.log_start_offset_interval_ms, delay),
        Duty.HIGH_WATERMARKS: Plan(config.high_watermark_interval_ms, config.high_watermark_interval_ms),
        Duty.SCRUB: Plan(SCRUB_PERIOD_MS, SCRUB_DELAY_MS),
    }
    left_out = _LEADERS if config.follows else set() if config.cleaner_enable else {Duty.CLEAN}
    return {duty: plan for duty, plan in plans.items() if duty not in left_out}


class Schedule(NamedTuple):
    plans: Mapping[Duty, Plan]
    due_at: Mapping[Duty, int]

    @classmethod
    def begin(cls, plans: Mapping[Duty, Plan], opened_at: Timestamp) -> Schedule:
        return cls(plans, {duty: opened_at + plan.delay_ms for duty, plan in plans.items()})

    def due(self, now: Timestamp) -> tuple[Duty, ...]:
        return tuple(duty for duty in Duty if duty in self.due_at and self._is_due(duty, now))

    def done(self, duties: Iterable[Duty], now: Timestamp) -> Schedule:
        due_at = dict(self.due_at)
        for duty in duties:
            due_at[duty] = now + self.plans[duty].period_ms
        return Schedule(self.plans, due_at)

    def replanned(self, plans: Mapping[Duty, Plan], now: Timestamp) -> Schedule:
        """Return the schedule with other plans. Due times stay, but none is later than one new period from `now`."""
        due_at = {}
        for duty, plan in plans.items():
            soonest = now + plan.period_ms
            due_at[duty] = min(self.due_at.get(duty, soonest), soonest)
        return Schedule(plans, due_at)

    def _is_due(self, duty: Duty, now: Timestamp) -> bool:
        plan = self.plans[duty]
        remaining = self.due_at[duty] - now
        return remaining <= 0 or remaining > max(plan.period_ms, plan.delay_ms)
