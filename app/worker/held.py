"""The leases this worker holds, and the clock by which it stops the work under each by itself (LS-05, PROTOCOL 2)."""

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from app.domain.leases import LeaseVerdict
from app.worker.clock import Clock

log = structlog.get_logger("gpuyard.worker")


class LeasedJob(Protocol):
    """What works under a lease. Both verbs return at once and may come from any thread, more than once."""

    @property
    def lease_id(self) -> int:
        """The fencing token."""

    def list_unstarted(self) -> bool:
        """Tell a heartbeat whether no row was begun."""

    @property
    def is_spooled(self) -> bool:
        """Its report lies in the spool and is not acknowledged."""

    def stop(self, reason: str) -> None:
        """Cut what runs; hand in what is finished; report."""

    def drop(self, reason: str) -> None:
        """Cut what runs and send nothing: the lease is no longer ours."""


@dataclass(slots=True)
class _Entry:
    job: LeasedJob
    sure_at: float
    """When the call was sent whose answer last said that the lease is ours."""
    is_stopped: bool = False
    """No answer came in time, so nothing runs under it any more."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The leases of one heartbeat; `unstarted` and `spooled` are parts of `leases`. `claiming`: claims that are out."""

    leases: list[int]
    unstarted: list[int]
    spooled: list[int]
    claiming: list[str] = field(default_factory=list)


class HeldLeases:
    """Every lease whose end is not acknowledged yet. Thread-safe; jobs are called outside of the lock."""

    def __init__(self, clock: Clock, self_stop_seconds: float) -> None:
        self._clock = clock
        self.self_stop_seconds = self_stop_seconds
        self._lock = threading.Lock()
        self._entries: dict[int, _Entry] = {}
        self._claiming: set[str] = set()
        self._stop_heard_at = -math.inf
        self.on_doubt: Callable[[], None] = lambda: None
        """Called when a lease comes that may have been stopped while its claim was out: the next beat is told."""

    @contextmanager
    def claiming(self, request_id: str) -> Iterator[None]:
        """A claim is out: what it was granted is waited for, however late its answer comes."""
        with self._lock:
            self._claiming.add(request_id)
        try:
            yield
        finally:
            with self._lock:
                self._claiming.discard(request_id)

    def add(self, job: LeasedJob, sent_at: float) -> None:
        """Hold a lease whose claim was sent at `sent_at`."""
        with self._lock:
            self._entries[job.lease_id] = _Entry(job, sent_at)
        if sent_at <= self._stop_heard_at:
            self.on_doubt()

    def stop_heard(self) -> None:
        """Some batch was stopped, somebody says. A beat now does not list what claims that are out will bring."""
        self._stop_heard_at = self._clock()

    def remove(self, lease_id: int) -> None:
        """Forget a lease whose end is acknowledged, or that is lost."""
        with self._lock:
            self._entries.pop(lease_id, None)

    def __len__(self) -> int:
        """Count the leases held."""
        return len(self._entries)

    def longest_unconfirmed(self) -> float:
        """How long ago, in seconds, the call was sent whose answer last said that the most doubtful lease is ours."""
        with self._lock:
            oldest = min((entry.sure_at for entry in self._entries.values()), default=None)
        return 0.0 if oldest is None else self._clock() - oldest

    def listing(self) -> Listing:
        """What the next heartbeat says."""
        with self._lock:
            jobs = [entry.job for entry in self._entries.values()]
            claiming = sorted(self._claiming)
        return Listing(
            leases=[job.lease_id for job in jobs],
            unstarted=[job.lease_id for job in jobs if job.list_unstarted()],
            spooled=[job.lease_id for job in jobs if job.is_spooled],
            claiming=claiming,
        )

    def apply(self, verdicts: Mapping[int, LeaseVerdict], sent_at: float) -> None:
        """Take the answer to the heartbeat that was sent at `sent_at`. A lease it does not name is not renewed."""
        told: list[tuple[LeasedJob, LeaseVerdict]] = []
        with self._lock:
            for lease_id, verdict in verdicts.items():
                entry = self._entries.get(lease_id)
                if entry is None:
                    continue
                if verdict is LeaseVerdict.RENEWED:
                    entry.sure_at = max(entry.sure_at, sent_at)
                    continue
                if entry.job.is_spooled:
                    continue  # its end is on the way, and has a verdict of its own
                if verdict is LeaseVerdict.STALE:
                    del self._entries[lease_id]
                told.append((entry.job, verdict))
        for job, verdict in told:
            if verdict is LeaseVerdict.STALE:
                log.warning("lease.stale", lease_id=job.lease_id)
                job.drop("the control plane gave the lease to nobody or to somebody else")
            else:
                job.stop("the batch was told to stop")

    def stop(self, lease_ids: list[int]) -> None:
        """Stop jobs whose batch was told to stop, as a hand-in's answer says."""
        with self._lock:
            jobs = [self._entries[lease_id].job for lease_id in lease_ids if lease_id in self._entries]
        for job in jobs:
            job.stop("the batch was told to stop")

    def stop_overdue(self) -> list[int]:
        """Stop each job of whose lease nothing was heard for `self_stop_seconds`, and return which leases these are.

        They stay listed until their end is acknowledged: the control plane may have been the one that was away, and
        then it takes what was finished.
        """
        limit = self._clock() - self.self_stop_seconds
        with self._lock:
            overdue = [e for e in self._entries.values() if e.sure_at <= limit and not e.is_stopped]
            for entry in overdue:
                entry.is_stopped = True
        for entry in overdue:
            log.error("lease.self_stopped", lease_id=entry.job.lease_id, after_seconds=self.self_stop_seconds)
            entry.job.stop("no heartbeat was answered in time")
        return [entry.job.lease_id for entry in overdue]
