// Pools: how many workers each has, how many of them could take work, and its rules.

import { each, get } from "./api.js";
import { byId, show, stamp, write } from "./dom.js";
import { joined } from "./words.js";

const SECONDS = 5;

export async function look() {
  const [{ data: pools }, workers] = await Promise.all([get("v1/pools"), each("v1/workers")]);
  const section = byId("pools");
  section.querySelector("[data-empty]").hidden = pools.length > 0;
  show(section.querySelector("[data-list]"), pools, {
    keyOf: (pool) => pool.name,
    make: () => stamp("pool-card"),
    update: (card, pool) => update(card, pool, workers.filter((worker) => worker.pool === pool.name)),
  });
  offer(pools);
  return SECONDS;
}

export function clear() {
  byId("pools").querySelector("[data-list]").replaceChildren();
  offer([]);
}

/** Have a batch sent to one of these, or to whichever is the default. */
function offer(pools) {
  show(byId("pool"), [{ name: "" }, ...pools], {
    keyOf: (pool) => pool.name,
    make: () => document.createElement("option"),
    update: (option, { name }) => {
      option.value = name;
      option.textContent = name || "the default pool";
    },
  });
}

function update(card, pool, workers) {
  const free = workers.filter((worker) => worker.slots.batches?.free > 0).length;
  const slots = Object.entries(pool.slots).map(([name, count]) => `${count} ${name}`);
  write(card, {
    title: pool.name,
    workers: workers.length ? `${workers.length === 1 ? "1 worker" : `${workers.length} workers`}, ${free} with a free slot` : "no worker",
    rules: joined(
      pool.default && "the default pool",
      pool.shared ? "shared by all orgs" : "of this org",
      slots.length && `slots a worker: ${slots.join(", ")}`,
      pool.max_load !== null && `load up to ${pool.max_load} a CPU`,
      pool.min_memory_gb !== null && `${pool.min_memory_gb} GB of memory kept free`,
    ),
  });
}
