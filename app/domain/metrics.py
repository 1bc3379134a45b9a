"""Every figure that our processes show to Prometheus, and what each says: one table for code, reference and tests.

No label names an org, a user, a batch or a model, so that a page of metrics tells nobody's business but the operator's.
"""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Prometheus' types of metrics."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Source(StrEnum):
    """Who tells a figure. What is read from the database is the same on every API process."""

    DATABASE = "API (database)"
    API = "API"
    CONTROL = "API, control worker"
    WORKER = "GPU worker"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric as it is scraped. `buckets` are a histogram's upper bounds."""

    name: str
    kind: Kind
    source: Source
    labels: tuple[str, ...]
    says: str
    buckets: tuple[float, ...] = ()


def _gauge(source: Source, name: str, says: str, *labels: str) -> Metric:
    return Metric(name, Kind.GAUGE, source, labels, says)


def _counter(source: Source, name: str, says: str, *labels: str) -> Metric:
    return Metric(name, Kind.COUNTER, source, labels, says)


S = Source

# --- read from the database

DATABASE_UP = _gauge(
    S.DATABASE, "gpuyard_database_up", "1: the figures of the database could be read; 0: none are shown."
)
FIGURES_SECONDS = _gauge(S.DATABASE, "gpuyard_figures_seconds", "How long the last reading of these figures took.")
FIGURES_CUT = _gauge(
    S.DATABASE, "gpuyard_figures_cut", "1: there is more than one reading looks at, so counts are lower bounds."
)
BATCHES = _gauge(S.DATABASE, "gpuyard_batches", "Batches that have not ended.", "pool", "state")
QUEUED_JOBS = _gauge(
    S.DATABASE,
    "gpuyard_queued_jobs",
    "Shards that no worker holds; in the pool `control`, pieces of control work.",
    "pool",
)
QUEUE_WAIT = _gauge(
    S.DATABASE,
    "gpuyard_queue_wait_seconds",
    "How long the oldest batch waits of which no worker holds a shard; in `control`, the oldest piece of work.",
    "pool",
)
WORKERS = _gauge(
    S.DATABASE, "gpuyard_workers", "Workers that have not left, by what is known of them.", "pool", "state"
)
WEBHOOKS_WAITING = _gauge(
    S.DATABASE, "gpuyard_webhooks_waiting", "Deliveries of webhooks that wait for their next try, or for their first."
)
WEBHOOK_WAIT = _gauge(
    S.DATABASE,
    "gpuyard_webhook_wait_seconds",
    "How long the oldest of these is under way.",
)
LEASES = _gauge(S.DATABASE, "gpuyard_leases", "Leases that live.", "pool", "state")
LEASE_AGE = _gauge(S.DATABASE, "gpuyard_lease_age_seconds", "Age of the oldest lease that lives.", "pool")
LEASE_RENEWAL_AGE = _gauge(
    S.DATABASE,
    "gpuyard_lease_renewal_age_seconds",
    "Longest time since a lease that lives was granted or renewed.",
    "pool",
)
LEASES_OVERDUE = _gauge(
    S.DATABASE, "gpuyard_leases_overdue", "Leases that no sweep has ended although their time is over.", "pool"
)
SWEEP_AGE = _gauge(S.DATABASE, "gpuyard_sweep_age_seconds", "Time since the last pass of a sweep began.", "sweep")
SWEEP_SECONDS = _gauge(S.DATABASE, "gpuyard_sweep_duration_seconds", "How long the last pass of a sweep took.", "sweep")
SWEEP_UNFINISHED = _gauge(
    S.DATABASE,
    "gpuyard_sweep_unfinished_seconds",
    "Time since a pass of a sweep began that has not ended; 0: all have.",
    "sweep",
)
SWEEP_DEGRADED = _gauge(
    S.DATABASE, "gpuyard_sweep_degraded", "1: an API process ran the last pass, in place of a control worker.", "sweep"
)
EVENTS = _counter(
    S.DATABASE,
    "gpuyard_events_total",
    "Events since this process began to count; the reference of events names them.",
    "type",
)
RUNTIMES = _gauge(
    S.DATABASE,
    "gpuyard_runtimes",
    "Runtimes of workers that are heard: `alive`, `failing` (its breaker is open, a row at a time is tried) or `down`.",
    "pool",
    "state",
)
GPU_MEMORY_USED = _gauge(
    S.DATABASE, "gpuyard_gpu_memory_used_bytes", "Memory in use of a GPU.", "pool", "worker", "gpu"
)
GPU_MEMORY_TOTAL = _gauge(S.DATABASE, "gpuyard_gpu_memory_total_bytes", "Memory of a GPU.", "pool", "worker", "gpu")
GPU_UTILIZATION = _gauge(
    S.DATABASE, "gpuyard_gpu_utilization_ratio", "How busy a GPU is, from 0 to 1.", "pool", "worker", "gpu"
)
DISK_FREE = _gauge(
    S.DATABASE, "gpuyard_worker_disk_free_bytes", "Room on the disk of a worker's state directory.", "pool", "worker"
)
SPOOL_FULL = _gauge(
    S.DATABASE, "gpuyard_worker_spool_full", "1: a worker's disk takes no more, so it claims nothing.", "pool", "worker"
)

# --- counted by the process itself

BLOBS_FREE = _gauge(S.API, "gpuyard_blobs_free_bytes", "Room on the disk that holds files and results.")
HTTP_SECONDS = Metric(
    "gpuyard_http_request_seconds",
    Kind.HISTOGRAM,
    S.API,
    ("method", "route", "status"),
    "Calls by the time until they were answered to the end; polls and event streams wait on purpose.",
    (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0),
)
ROWS = _counter(
    S.API, "gpuyard_rows_total", "Rows that were stored as answered (`completed`) or `failed`.", "pool", "outcome"
)
TOKENS = _counter(
    S.API,
    "gpuyard_tokens_total",
    "Tokens of stored rows; `cached` are part of `input`, `reasoning` of `output`.",
    "pool",
    "kind",
)
HAND_IN_PARTS = _counter(
    S.API, "gpuyard_hand_in_parts_total", "Parts of hand-ins, a part a shard, by verdict.", "pool", "verdict"
)
BROKER_UP = _gauge(
    S.CONTROL, "gpuyard_broker_up", "1: the broker took the last message, or could be written to when last asked."
)
BROKER_SILENCE = _gauge(
    S.CONTROL, "gpuyard_broker_silent_seconds", "Time since the broker last took a message or could be written to."
)
BELLS = _counter(
    S.CONTROL,
    "gpuyard_bells_total",
    "Bells that were `rung`, `failed`, or `dropped` because too many waited.",
    "outcome",
)
CONTROL_WORK = Metric(
    "gpuyard_control_work_seconds",
    Kind.HISTOGRAM,
    S.CONTROL,
    ("verb", "outcome"),
    "Pieces of control work (`validate`, `finalize`, `deliver`) by the time they took.",
    (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0),
)
WEBHOOKS = _counter(
    S.CONTROL,
    "gpuyard_webhook_tries_total",
    "Tries to deliver a webhook by what became of it: `delivered`, `waiting` for the next, `given_up` or `dropped`.",
    "state",
)
DAMAGED = _counter(
    S.CONTROL,
    "gpuyard_damaged_contents_total",
    "Contents that were found to be not what was written, or to be gone: an `input`, a `segment` or a `result`.",
    "kind",
)
SWEEP_PASSES = _counter(
    S.CONTROL, "gpuyard_sweep_passes_total", "Passes of sweeps that this process ran.", "sweep", "outcome"
)

# --- told by a GPU worker of itself

WORKER_INFO = _gauge(
    S.WORKER, "gpuyard_worker_info", "Always 1; its labels say who this is.", "worker", "pool", "version"
)
WORKER_PHASE = _gauge(S.WORKER, "gpuyard_worker_phase", "1 for the phase that the worker is in.", "phase")
WORKER_ROWS = _counter(S.WORKER, "gpuyard_worker_rows_total", "Rows that were handed in and stored.", "outcome")
WORKER_TOKENS = _counter(S.WORKER, "gpuyard_worker_tokens_total", "Tokens of those rows.", "kind")
WORKER_RETRIES = _counter(
    S.WORKER,
    "gpuyard_worker_row_retries_total",
    "Rows that run again, by what was decided for them after a runtime failed or refused them.",
    "verdict",
)
WORKER_IN_FLIGHT = _gauge(S.WORKER, "gpuyard_worker_rows_in_flight", "Rows at the runtimes.")
WORKER_LIMIT = _gauge(S.WORKER, "gpuyard_worker_rows_in_flight_limit", "How many rows may be there at once.")
WORKER_WAITING = _gauge(S.WORKER, "gpuyard_worker_rows_waiting", "Rows in hand that have not begun.")
WORKER_BATCHES = _gauge(S.WORKER, "gpuyard_worker_batches", "Batches that the worker works on.")
WORKER_LEASES = _gauge(S.WORKER, "gpuyard_worker_leases", "Leases whose end is not acknowledged.")
WORKER_LEASE_DOUBT = _gauge(
    S.WORKER,
    "gpuyard_worker_lease_unconfirmed_seconds",
    "Longest time since the control plane confirmed a lease; at the self-stop the worker drops it.",
)
WORKER_SILENCE = _gauge(
    S.WORKER, "gpuyard_worker_unreachable_seconds", "How long the control plane has not answered; 0 while it does."
)
WORKER_RUNTIME = _gauge(
    S.WORKER,
    "gpuyard_worker_runtime_state",
    "A runtime's breaker: 1 for its state, `closed`, `open`, `down` (its rows are given back) or `dead`.",
    "runtime",
    "state",
)
WORKER_RUNTIME_ROWS = _gauge(S.WORKER, "gpuyard_worker_runtime_rows", "Rows at a runtime.", "runtime")
WORKER_GPU_USED = _gauge(S.WORKER, "gpuyard_worker_gpu_memory_used_bytes", "Memory in use of a GPU.", "gpu", "name")
WORKER_GPU_TOTAL = _gauge(S.WORKER, "gpuyard_worker_gpu_memory_total_bytes", "Memory of a GPU.", "gpu", "name")
WORKER_GPU_BUSY = _gauge(
    S.WORKER, "gpuyard_worker_gpu_utilization_ratio", "How busy a GPU is, from 0 to 1.", "gpu", "name"
)
WORKER_SPOOLED = _gauge(S.WORKER, "gpuyard_worker_spool_files", "Hand-ins and reports on disk that are not answered.")
WORKER_SPOOL_ERROR = _gauge(
    S.WORKER, "gpuyard_worker_spool_error", "1: the disk takes no more, so the worker claims nothing."
)

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
"""All of them, in the order above."""
