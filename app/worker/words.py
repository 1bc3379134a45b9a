"""What a worker says of itself, in heartbeats and in polls."""

from collections.abc import Callable

from app.domain.workers import Activity, Phase
from app.schemas.polls import Poll
from app.schemas.workers import Heartbeat, HostSample
from app.worker.clock import Clock
from app.worker.held import HeldLeases, Listing
from app.worker.opening import Opened

FACTS_SECONDS = 30.0


class Words:
    """Thread-safe as far as each of its two callers is one thread. All three functions are asked each time."""

    def __init__(
        self,
        own: Opened,
        worker_id: str,
        held: HeldLeases,
        clock: Clock,
        *,
        phase: Callable[[], Phase],
        activity: Callable[[], Activity],
        lacking: Callable[[], str] = str,
    ) -> None:
        self._own = own
        self._worker_id = worker_id
        self._held = held
        self._clock = clock
        self._phase = phase
        self._activity = activity
        self._lacking = lacking
        self._facts_at = float("-inf")
        self._changes = self._sent = self._told = 0
        self._looked = 0
        self._heard: int | None = None
        self._said: Phase | None = None
        self._answered: Phase | None = None

    def beat(self, listing: Listing) -> Heartbeat:
        """Describe a heartbeat; what runtimes serve goes with it when it changed, and every 30 s (R-02)."""
        looked = self._looked  # before the facts that go with it
        now = self._clock()
        with_facts = now - self._facts_at >= FACTS_SECONDS
        if with_facts:
            self._facts_at, self._sent = now, self._changes
        self._said = self._phase()
        return Heartbeat(
            boot_id=self._own.state.boot_id,
            after=self._heard,
            phase=self._said,
            activity=self._activity(),
            current_invocations=len(listing.leases),
            leases=listing.leases,
            unstarted=listing.unstarted,
            spooled=listing.spooled,
            claiming=listing.claiming,
            sample=self._sample(),
            runtimes=self._own.runtimes.infos() if with_facts else None,
            looked=looked,
        )

    def _sample(self) -> HostSample | None:
        """The host as it was seen last, whether its disk takes what is finished, and what set-up waits for."""
        found = {"spool_error": self._own.spool.error, "not_ready": self._lacking()[:500] or None}
        latest, own = self._own.sampler.latest, {name: text for name, text in found.items() if text is not None}
        return (latest or HostSample()).model_copy(update=own) if own else latest

    def facts_changed(self) -> None:
        """Have the next heartbeat say what the runtimes serve."""
        self._changes += 1
        self._facts_at = float("-inf")

    def looked(self, request: int) -> None:
        """Have the next heartbeat say that a request to list models again is done, and what was found."""
        self.facts_changed()
        self._looked = request

    def answered(self, at: int | None) -> None:
        """The beat described last was answered; the control plane calls that moment `at`."""
        self._told, self._answered, self._heard = self._sent, self._said, at

    @property
    def was_ready(self) -> bool:
        """Whether the control plane knew, when it answered last, that the worker is ready and what its runtimes serve.

        What it says of work before that says nothing.
        """
        return self._answered is Phase.READY and self.are_current

    @property
    def are_current(self) -> bool:
        """Whether the control plane knows what the runtimes serve: else it grants what they do not."""
        return self._told == self._changes

    def poll(self, cursor: str | None, *, free: int, wait_seconds: float) -> Poll | None:
        """Describe a poll; none while what it could bring could not be begun (CC-02)."""
        phase = self._phase()
        if not free and phase is not Phase.SETUP:  # in set-up it takes no work and hears the rest (R-26, P-08)
            return None
        return Poll(
            worker_id=self._worker_id,
            boot_id=self._own.state.boot_id,
            cursor=cursor,
            phase=phase,
            current_invocations=len(self._held),
            free=free,
            wait_seconds=wait_seconds,
        )
