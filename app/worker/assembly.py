"""A welcomed worker's loops and parts, put together: who is told what by whom."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from app.client.errors import Dismissed
from app.domain.workers import Activity, ByeReason, Phase
from app.schemas.polls import Poll, PolledMessage
from app.schemas.workers import HeartbeatAnswer, Welcome
from app.worker.backoff import Backoff
from app.worker.clock import Clock
from app.worker.drain import Drain
from app.worker.gate import Gate
from app.worker.heartbeat import Heartbeat
from app.worker.held import HeldLeases
from app.worker.host import ModelRoom
from app.worker.kit import Kit
from app.worker.load_watch import LoadWatch
from app.worker.loop import Loop
from app.worker.opening import Opened
from app.worker.polling import Polling
from app.worker.probes import Probes
from app.worker.pull_reports import PullReports
from app.worker.puller import Puller
from app.worker.selfstop import SelfStop
from app.worker.setting_up import SettingUp, ThreadStarts
from app.worker.shares import Shares
from app.worker.spool_sender import SpoolSender
from app.worker.trials import Trials
from app.worker.words import Words
from config.settings import WorkerSettings


class Told(Protocol):
    """What the parts tell the agent, and ask it. All may come from any thread."""

    @property
    def phase(self) -> Phase:
        """The phase that the next word to the control plane says."""

    def activity(self) -> Activity:
        """What the worker is busy with."""

    def answered(self, answer: HeartbeatAnswer) -> None:
        """A heartbeat was answered."""

    def next_poll(self, cursor: str | None) -> Poll | None:
        """What to poll with, or None while it has no permit for what a poll could bring."""

    def heard(self, message: PolledMessage) -> None:
        """A poll brought a message."""

    def runtimes_changed(self) -> None:
        """A runtime came, went, or serves something else."""

    def spool_changed(self) -> None:
        """The disk is full, or has room again."""

    def share_ended(self) -> None:
        """There is a permit again."""

    def looked(self, request: int) -> None:
        """All runtimes were asked for their models again."""

    def row_done(self, began_at: float) -> None:
        """A row was answered."""

    def fit(self) -> None:
        """More or fewer prompts may be in flight."""

    def ring(self) -> None:
        """There may be work."""

    def drain(self, reason: ByeReason) -> bool:
        """The worker is to leave."""

    def set_up(self, is_ready: bool) -> None:
        """Nothing is lacking any more, or something is."""

    def enter(self, phase: Phase) -> bool:
        """The drain has come so far."""

    def leave(self, reason: ByeReason | None, abandoned: int) -> None:
        """The drain is over."""

    def dismissed(self, error: Dismissed) -> None:
        """The control plane wants nothing more of this process."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the agent speaks to; `loops` are to be started, and stopped in this order."""

    held: HeldLeases
    words: Words
    puller: Puller
    starts: ThreadStarts
    shares: Shares
    polling: Polling
    drain: Drain
    heartbeat: Heartbeat
    probes: Probes
    sender: SpoolSender
    setting_up: SettingUp
    loops: tuple[Loop, ...]


def assemble(agent: Told, own: Opened, settings: WorkerSettings, welcome: Welcome, gate: Gate, clock: Clock) -> Parts:
    """Build all of it for the worker that `welcome` names. Nothing runs yet."""
    held = HeldLeases(clock, welcome.timing.self_stop_seconds)
    setting_up = SettingUp(_needs(own), on_change=agent.set_up)
    starts = ThreadStarts(Backoff(settings.retry_min_seconds, settings.retry_max_seconds), clock, need=setting_up.need)
    words = Words(
        own,
        welcome.worker_id,
        held,
        clock,
        phase=lambda: agent.phase,
        activity=agent.activity,
        lacking=lambda: setting_up.lacking,
    )
    boot_id = own.state.boot_id
    reports = PullReports(own.plane, welcome.worker_id, boot_id, clock, on_dismissed=agent.dismissed)
    room = ModelRoom(own.state.path, os.environ, vram_gb=settings.vram_gb)
    puller = Puller(
        own.runtimes,
        clock,
        report=reports.note,
        on_change=agent.runtimes_changed,
        lacking=lambda url, size, missing: room.lacking(url, own.sampler.latest, size=size, missing=missing),
    )
    kit = _kit(
        agent,
        own,
        settings,
        welcome,
        held,
        puller,
        starts,
        clock,
        lambda: agent.phase is Phase.READY and words.are_current,
    )
    shares = Shares(kit, gate, clock, on_ended=agent.share_ended)
    polling = _polling(agent, own, settings, clock)
    drain = Drain(
        shares,
        drain_seconds=settings.drain_seconds,
        kill_after_seconds=settings.kill_after_seconds,
        set_phase=agent.enter,
        leave=agent.leave,
    )
    heartbeat = Heartbeat(
        own.plane,
        welcome.worker_id,
        held,
        renew_seconds=welcome.timing.renew_seconds,
        clock=clock,
        describe=words.beat,
        on_answer=agent.answered,
        on_dismissed=agent.dismissed,
    )
    held.on_doubt = heartbeat.wake
    probes = Probes(own.runtimes, clock, on_change=agent.runtimes_changed, on_looked=agent.looked)
    sender = SpoolSender(own.spool, own.plane)
    own.spool.on_change = agent.spool_changed
    loops = (
        heartbeat,
        SelfStop(held),
        setting_up,
        probes,
        LoadWatch(own.runtimes, own.permits, own.size, clock, on_resized=agent.fit),
        Trials(own.runtimes, shares, clock, on_change=agent.runtimes_changed),
        sender,
        reports,
        polling,
    )
    return Parts(held, words, puller, starts, shares, polling, drain, heartbeat, probes, sender, setting_up, loops)


def _polling(agent: Told, own: Opened, settings: WorkerSettings, clock: Clock) -> Polling:
    return Polling(
        own.plane.poll,
        Backoff(settings.retry_min_seconds, settings.retry_max_seconds),
        clock,
        describe=agent.next_poll,
        on_message=agent.heard,
        on_dismissed=agent.dismissed,
    )


def _needs(own: Opened) -> tuple[Callable[[], str | None], ...]:
    """What a worker waits for before it is ready for the first time (BO-09)."""

    def disk() -> str | None:
        return own.spool.error

    def runtime() -> str | None:
        if own.runtimes.any_alive:
            return None
        return "; ".join(f"{info.name}: {info.reason or 'not alive'}" for info in own.runtimes.infos())[:500]

    return disk, runtime


def _kit(
    agent: Told,
    own: Opened,
    settings: WorkerSettings,
    welcome: Welcome,
    held: HeldLeases,
    puller: Puller,
    starts: ThreadStarts,
    clock: Clock,
    is_ready: Callable[[], bool],
) -> Kit:
    return Kit(
        plane=own.plane,
        worker_id=welcome.worker_id,
        boot_id=own.state.boot_id,
        held=held,
        spool=own.spool,
        permits=own.permits,
        runtimes=own.runtimes,
        puller=puller,
        starts=starts,
        clock=clock,
        row_timeout_seconds=settings.row_timeout_seconds,
        segment_seconds=welcome.segment_seconds,
        ring=agent.ring,
        on_dismissed=agent.dismissed,
        row_done=agent.row_done,
        starved=own.size.starved,
        counters=own.counters,
        told_to_drain=lambda: agent.drain(ByeReason.DRAIN),
        is_ready=is_ready,
    )
