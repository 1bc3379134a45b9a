// Workers: what each can do now, why it gets no work, and its GPUs.

import { each } from "./api.js";
import { byId, show, showLines, stamp, write } from "./dom.js";
import { NO_LEASE, duration, joined, size, tone } from "./words.js";

const SECONDS = 3;

export async function look() {
  const found = await each("v1/workers");
  const section = byId("workers");
  section.querySelector("[data-empty]").hidden = found.length > 0;
  show(section.querySelector("[data-list]"), found, { keyOf: (worker) => worker.id, make: () => stamp("worker-card"), update });
  return SECONDS;
}

export function clear() {
  byId("workers").querySelector("[data-list]").replaceChildren();
}

function update(card, worker) {
  const slots = worker.slots.batches;
  write(card, {
    title: worker.name,
    state: worker.drain_requested_at && worker.state === "active" ? "active, to drain" : worker.state,
    facts: joined(
      `pool ${worker.pool}`,
      slots && `${slots.free} of ${slots.total} slots free`,
      `heard of ${duration(worker.seen_seconds)} ago`,
    ),
    why: worker.no_lease ? `No more work now: ${[NO_LEASE[worker.no_lease] ?? worker.no_lease, worker.no_lease_text].filter(Boolean).join("; ")}.` : "",
    gpuError: worker.gpu_error,
    host: joined(
      worker.hostname,
      worker.load_per_cpu !== null && `load ${worker.load_per_cpu.toFixed(2)} a CPU`,
      worker.memory_available !== null && `${size(worker.memory_available)} of ${size(worker.memory_total)} memory free`,
      worker.disk_free !== null && `${size(worker.disk_free)} disk free`,
      worker.transport,
    ),
  });
  card.querySelector(".badge").dataset.tone = tone(worker.state);
  showLines(card.querySelector("[data-gpus]"), worker.gpus, "gpu-line", updateGpu);
  showLines(card.querySelector("[data-runtimes]"), worker.runtimes, "runtime-line", updateRuntime);
  showLines(card.querySelector("[data-pulls]"), worker.pulls.filter((pull) => pull.status === "pulling"), "pull-line", updatePull);
}

function updateGpu(line, gpu) {
  const knowsBusy = gpu.utilization !== null;
  const knowsMemory = gpu.memory_total !== null && gpu.memory_used !== null;
  write(line, {
    title: `GPU ${gpu.index}: ${gpu.name}`,
    busy: knowsBusy ? `${Math.round(gpu.utilization)} % busy` : "",
    memory: knowsMemory ? `${size(gpu.memory_used)} of ${size(gpu.memory_total)}` : "",
    error: gpu.error,
  });
  setMeter(line.querySelector("[data-busy]"), knowsBusy, gpu.utilization, 100);
  setMeter(line.querySelector("[data-memory]"), knowsMemory, gpu.memory_used, gpu.memory_total);
}

function setMeter(meter, known, value, max) {
  meter.hidden = !known;
  meter.max = max ?? 1;
  meter.value = value ?? 0;
}

function updateRuntime(line, runtime) {
  const models = runtime.models.length > 3 ? `${runtime.models.length} models` : runtime.models.join(", ");
  write(line, {
    title: joined(runtime.name, runtime.alive ? models || "no model" : "not alive"),
    reason: runtime.reason ?? (runtime.alive ? "" : "no answer"),
  });
}

function updatePull(line, pull) {
  write(line, { title: `fetches ${pull.model}, ${size(pull.completed)}${pull.total ? ` of ${size(pull.total)}` : ""}` });
  const bar = line.querySelector("[data-bar]");
  if (pull.total) bar.value = pull.completed / pull.total;
  else bar.removeAttribute("value");
}
