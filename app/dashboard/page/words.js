// How figures and states read.

const NUMBER = new Intl.NumberFormat("en");
const MOMENT = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

export const number = (value) => NUMBER.format(value);
export const moment = (seconds) => MOMENT.format(new Date(seconds * 1000));
export const rows = (count) => (count === 1 ? "1 row" : `${number(count)} rows`);
export const joined = (...parts) => parts.filter(Boolean).join(" · ");

/** Bytes as people say them. */
export function size(bytes) {
  if (bytes === null || bytes === undefined) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let step = 0;
  for (; bytes >= 1024 && step < units.length - 1; step += 1) bytes /= 1024;
  return `${bytes >= 10 || step === 0 ? Math.round(bytes) : bytes.toFixed(1)} ${units[step]}`;
}

/** A span of time by its two largest units. */
export function duration(seconds) {
  const units = [["d", 86_400], ["h", 3600], ["m", 60], ["s", 1]];
  let rest = Math.max(0, Math.round(seconds));
  const parts = [];
  for (const [name, length] of units) {
    if (rest >= length) parts.push(`${Math.floor(rest / length)}${name}`);
    rest %= length;
  }
  return parts.slice(0, 2).join(" ") || "0s";
}

// A worker's `no_lease` as a sentence; `gpuyard worker show` says the same.
export const NO_LEASE = {
  slots: "all its slots are taken",
  nothing: "nothing waits that it could run",
  load: "its host is busier than the pool's max_load allows",
  memory: "its host has less memory free than the pool's min_memory_gb",
  disk: "it cannot write to its state_dir: free its disk",
  phase: "it is not ready yet, or not any more",
  draining: "it finishes what it has and leaves",
  limit: "a limit of the pool is reached",
  unreachable: "it has not been heard of within the grace",
  yield: "other work goes first",
  unstarted: "it could not start its last jobs: see its log",
};

const GOOD = new Set(["completed", "in_progress", "active"]);
const BAD = new Set(["failed", "expired", "offline", "unreachable", "stale"]);

/** Which colour a state has; its word is always there as well. */
export const tone = (state) => (GOOD.has(state) ? "good" : BAD.has(state) ? "bad" : "warn");
