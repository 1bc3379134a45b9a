"""The agent inside a GPU worker: starts, stops and joins its loops, and is all that Celery's side sees of them.

Start   state directory locked > runtimes looked at > page of metrics > spool sent > hello (phase booting)
        > loops (phase setup) > nothing is lacking any more: gate open (phase ready)
Stop    1. gate and door closed, shares wound down, cut, given up (app.worker.drain)
        2. probes, spool sender   3. bye   4. heartbeat, self-stop: last, for leases live until their end is answered
        5. runtimes, HTTP client, state directory   6. the process, by `on_exit`
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import structlog

from app.client.errors import ControlPlaneError, Dismissed, TryLater
from app.domain.polls import MessageKind
from app.domain.workers import PHASES, Activity, ByeReason, Phase, Transport
from app.os_errors import plainly
from app.schemas.polls import Poll, PolledMessage
from app.schemas.workers import HeartbeatAnswer, Welcome
from app.worker import metrics
from app.worker.assembly import assemble
from app.worker.clock import Clock, boottime
from app.worker.door import Door
from app.worker.gate import Gate
from app.worker.leaving import say_bye, take_back_hello
from app.worker.opening import introduce, open_parts
from app.worker.state import StateDirBusy
from app.worker.watchdog import EXIT_SECONDS, watchdog
from config.logging import stand_on_each_line
from config.settings import WorkerSettings
from executors.base import BaseExecutor, ExecutorUnavailable

STOP_SECONDS = 1.0
"""What a loop gets to end its turn; a call that hangs longer is cut by the end of the client."""
BROKER_SECONDS = 1.0
"""A broker that is away for less is not worth a poll."""
STUCK_EXIT_CODE = 75
"""Of a process that had to be ended because something in it hangs (EX_TEMPFAIL)."""
log = structlog.get_logger("gpuyard.worker")


class Agent:
    """One a process. `start` first; `attach` when a Celery worker carries it; `drain` and `join` at the end.

    `on_exit(code)` is to end the process, `watch(seconds, code)` to end it in any case after so long.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        executors: Sequence[BaseExecutor] | None = None,
        *,
        transport: Transport = Transport.CELERY,
        clock: Clock = boottime,
        on_exit: Callable[[int], None] = lambda _code: None,
        watch: Callable[[float, int], None] = lambda _seconds, _code: None,
    ) -> None:
        self._settings = settings
        self._executors = executors
        self._transport = transport
        self._clock = clock
        self._on_exit = on_exit
        self._parts = ExitStack()
        self._watch = watch
        self._ended = threading.Event()
        self._leaving = threading.Lock()
        self._moving = threading.Lock()
        self._door = Door(settings.pool)
        self._gate = Gate(settings.slots_batches, self._on_gate, bound=settings.invocation_bound)
        self._reset_seen: str | None = None
        self.name = settings.worker_name or ""
        self.phase = Phase.BOOTING
        self.exit_code = 0
        self.exit_reason = ""

    # --- the beginning

    def start(self) -> None:
        """Say hello and begin to beat.

        Raises SystemExit: with 1, the reason logged, when this cannot be a worker; with 0 when a signal came before.
        """
        try:
            self._own = open_parts(self._settings, self._executors, self._clock, self._parts)
            self._page = metrics.show(self._settings, self._own, lambda: self.phase, self._parts)
            welcome = self._introduce()
        except (StateDirBusy, ExecutorUnavailable, ControlPlaneError, OSError) as error:
            log.error("worker.refused", why=plainly(error), code=getattr(error, "code", None))  # noqa: TRY400 - one line
            self.exit_code, self.exit_reason = 1, plainly(error)
            self._close()
            raise SystemExit(1) from error
        except SystemExit:
            self._close()
            raise
        self._setting_up.look()  # before the first beat, whose answer says whether there is work
        if self._transport is Transport.HTTP:
            self._polling.begin()
        for loop in self._loops:
            loop.start()
        if welcome.drain:
            self.drain(ByeReason.DRAIN)
        elif welcome.work:
            self.ring()

    def _introduce(self) -> Welcome:
        """Say hello and go on to set-up. However that ends, nobody is left waiting for a process that goes."""
        try:
            welcome = introduce(self._settings, self._transport, self._own, self._ended)
            self._build(welcome)
            stand_on_each_line(worker=welcome.name, worker_id=welcome.worker_id)
            self._page.welcomed(welcome, self._shares)
            self._gate.resize(welcome.slots)
            self.enter(Phase.SETUP)
        except TryLater:
            take_back_hello(self._own, ByeReason.HELLO_FAILED)
            raise
        except SystemExit:
            take_back_hello(self._own, ByeReason.SIGNAL)
            raise
        return welcome

    def _build(self, welcome: Welcome) -> None:
        self.name, self._worker_id = welcome.name, welcome.worker_id
        parts = assemble(self, self._own, self._settings, welcome, self._gate, self._clock)
        self._words, self._shares, self._polling, self._drain = parts.words, parts.shares, parts.polling, parts.drain
        self._puller, self._heartbeat, self._probes = parts.puller, parts.heartbeat, parts.probes
        self._starts = parts.starts
        self._sender, self._setting_up, self._loops = parts.sender, parts.setting_up, parts.loops

    # --- what others ask of it

    def attach(self, celery_worker: Any, on_exit: Callable[[int], None]) -> None:
        """Take over the queue and the end of a Celery worker whose consumer has not started."""
        self._door.attach(celery_worker)
        self._on_exit, self._watch = on_exit, watchdog
        if self._ended.is_set():  # it was dismissed before Celery was there to be told
            on_exit(self.exit_code)

    def broker_away(self) -> None:
        """Hear of work by polls until `broker_back`: heartbeats alone would let it wait."""
        self._polling.begin(after_seconds=BROKER_SECONDS)

    def broker_back(self) -> None:
        """Leave the ringing to the broker again, with the queue as the door stands."""
        self._door.settle()
        self._polling.end()

    def no_thread(self, error: BaseException) -> None:
        """A message came and Celery could start no thread for it."""
        self._starts.failed(error)

    def run_batch(self, batch_id: str) -> None:
        """Take a share of the batch, or of a better one, in this thread. Without a permit it returns at once."""
        self._shares.run(batch_id)

    def beat_now(self, batch_id: str) -> None:
        """Ask the control plane about our leases now: somebody says that this batch was stopped."""
        self._shares.held.stop_heard()
        if any(share.batch.id == batch_id for share in self._shares.all()):
            self._heartbeat.wake()

    def call(self) -> None:
        """Ask the control plane now what it has for this worker."""
        self._heartbeat.wake()

    def drain(self, reason: ByeReason) -> bool:
        """Leave in good order; returns at once, `join` waits for it. False: it is leaving already, or never began."""
        if self.phase is Phase.BOOTING:
            self._ended.set()  # nothing was built to be drained; a hello under way is given up
            return False
        self.enter(Phase.DRAINING)
        begins = not self._ended.is_set() and self._drain.start(reason)
        if begins:
            self._watch(self._drain.longest_seconds + EXIT_SECONDS, STUCK_EXIT_CODE)
        return begins

    def on_signal(self) -> None:
        """Leave: the first signal drains, the second grants no more time. For a handler, so the main thread anywhere.

        Raises SystemExit(0) while there is nothing to drain yet: whatever `start` waits for, it is given up.
        """
        if self._ended.is_set():
            return  # this process is at its end
        if self.phase is Phase.BOOTING:
            raise SystemExit(0)
        # A handler may interrupt any lock holder: the work is another thread's.
        threading.Thread(target=self._drain_or_hurry, name="gpuyard-signal", daemon=True).start()

    def _drain_or_hurry(self) -> None:
        if not self.drain(ByeReason.SIGNAL) and not self._ended.is_set():
            self._drain.hurry()

    def on_shutdown(self) -> None:
        """Celery ends for a reason of its own: leave first."""
        self.drain(ByeReason.SIGNAL)
        if not self._ended.is_set():
            self.join(self._drain.longest_seconds)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the agent has ended."""
        return self._ended.wait(timeout)

    # --- what its parts tell it (app.worker.assembly)

    def activity(self) -> Activity:
        """Say what the worker is busy with."""
        if self._puller.is_active:
            return Activity.DOWNLOADING_MODEL
        return Activity.BUSY if self._shares.all() else Activity.IDLE

    def answered(self, answer: HeartbeatAnswer) -> None:
        """Take what a heartbeat was answered."""
        self._words.answered(answer.at)
        self._gate.resize(answer.slots)
        if answer.reset_backoff not in {None, self._reset_seen}:
            self._reset_seen = answer.reset_backoff
            self._polling.reset_backoff()
        if answer.look is not None:
            self._probes.ask(answer.look)
        if self._own.spool.has_orphans:
            self._sender.wake()
        if answer.drain:
            self.drain(ByeReason.DRAIN)
        elif answer.work:
            self._shares.ring()
        elif self._has_idled():
            self.drain(ByeReason.IDLE)

    def _has_idled(self) -> bool:
        """Whether it is to leave, for there is nothing to do (ID-01, ID-02). 0: as soon as it is told so when ready."""
        keep_alive, idle = self._settings.keep_alive_seconds, self._shares.idle_seconds
        return idle is not None and 0 <= keep_alive <= idle and self._words.was_ready and not self._puller.is_active

    def next_poll(self, cursor: str | None) -> Poll | None:
        """Describe the next poll; None while there is no permit for what it could bring."""
        free = self._gate.free if self._takes_work else 0
        return self._words.poll(cursor, free=free, wait_seconds=self._settings.wait_max_seconds)

    def heard(self, message: PolledMessage) -> None:
        """Do what a poll was answered."""
        if message.kind == MessageKind.WORK:
            self._shares.ring()
        elif message.kind == MessageKind.STOP:
            self._shares.held.stop_heard()
            self._heartbeat.wake()
        elif message.kind == MessageKind.DRAIN:
            self.drain(ByeReason.DRAIN)
        elif message.kind == MessageKind.RESET_BACKOFF:
            self._polling.reset_backoff()

    def runtimes_changed(self) -> None:
        """Say so to the control plane, and open or shut the door."""
        if self._own.size.runtimes_changed(self._own.runtimes.known_slots):
            self.fit()
        self._on_gate()
        self._setting_up.wake()
        self._words.facts_changed()
        self._heartbeat.wake()

    def looked(self, request: int) -> None:
        """Say to the control plane that the models are listed anew."""
        self._words.looked(request)
        self._heartbeat.wake()

    def spool_changed(self) -> None:
        """Say so to the control plane, and send what waits."""
        self._on_gate()
        self._setting_up.wake()
        self._heartbeat.wake()
        self._sender.wake()
        self._shares.ring()

    def ring(self) -> None:
        """Look for work, if there is a permit for it."""
        self._shares.ring()

    def share_ended(self) -> None:
        """Poll anew, with the permit that is free again."""
        self._polling.share_ended()

    def row_done(self, began_at: float) -> None:
        """Count a row that was answered, and began at this time of the clock."""
        if self._own.size.row_done(began_at):
            self.fit()

    def fit(self) -> None:
        """Have all shares fill or give back the prompts in flight."""
        log.info("prompts.resized", max_in_flight=self._own.permits.limit)
        for share in self._shares.all():
            share.fit()

    @property
    def _takes_work(self) -> bool:
        return self._gate.has_room and self._own.runtimes.any_alive and self._own.spool.error is None

    def _on_gate(self) -> None:
        self._door.set(is_open=self._takes_work)
        self._polling.wake()

    def enter(self, phase: Phase) -> bool:
        """Go on to a phase, where that is allowed; only in `ready` is the gate open (PH-07)."""
        with self._moving:
            if phase not in PHASES[self.phase]:
                return False
            self.phase = phase
            if phase is Phase.READY:
                self._gate.open()
            else:
                self._gate.close()
        self._heartbeat.wake()
        return True

    def set_up(self, is_ready: bool) -> None:
        """Say so, and take work or none."""
        if self.enter(Phase.READY if is_ready else Phase.SETUP) and is_ready:
            self._shares.begin()
            for share in self._shares.all():
                share.fit()  # their rows may wait for threads that can be started now
            log.info("worker.ready", worker=self.name, worker_id=self._worker_id, pool=self._settings.pool)

    # --- the end

    def dismissed(self, error: Dismissed) -> None:
        """The control plane wants nothing more of this process: stop all jobs, keep the spool, exit 1."""
        if self.exit_code:
            return
        self.exit_code, self.exit_reason = 1, str(error)
        log.error("worker.dismissed", why=str(error), code=error.code, status=error.status, request_id=error.request_id)
        self._watch(self._settings.kill_after_seconds + EXIT_SECONDS, self.exit_code)
        self.enter(Phase.TERMINATING)
        for share in self._shares.all():
            share.give_up()
        threading.Thread(target=self.leave, args=(None, 0), name="gpuyard-dismissed", daemon=True).start()

    def leave(self, reason: ByeReason | None, abandoned: int) -> None:
        """Say bye (not when dismissed), end the loops, end the process: whatever goes wrong on the way, it ends."""
        with self._leaving:
            if self._ended.is_set():
                return
            try:
                self._take_leave(reason, abandoned)
            except Exception:
                log.exception("leave.failed")
            finally:
                self._close()
        log.info("worker.left", reason=reason or "dismissed", exit_code=self.exit_code)
        self._on_exit(self.exit_code)

    def _take_leave(self, reason: ByeReason | None, abandoned: int) -> None:
        self._shares.wait_none(0.0 if reason else self._settings.kill_after_seconds)
        self._puller.close()
        self._probes.stop()
        self._sender.stop()
        if reason is not None:
            say_bye(self._own, self._worker_id, reason, abandoned)
        for loop in self._loops:
            loop.stop()
        for loop in self._loops:
            loop.join(STOP_SECONDS)

    def _close(self) -> None:
        try:
            self._parts.close()
        except Exception:
            log.exception("close.failed")
        finally:
            self._ended.set()
