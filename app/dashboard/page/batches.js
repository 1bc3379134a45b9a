// Batches: the newest first, with progress, what they wait for, why rows failed, and what can be done about them.

import { download, get, post } from "./api.js";
import { batchTexts, isOver, share, titleOf, unanswered } from "./batch_texts.js";
import { askToCancel } from "./cancel.js";
import { byId, show, showLines, stamp, write } from "./dom.js";
import { failuresOf, forget } from "./failures.js";
import { number, tone } from "./words.js";

const SECONDS_RUNNING = 2;
const SECONDS_QUIET = 5;
const SHOWN = 20;
const seen = new Map();
let after = null;
let lookAgain = () => {};

export function begin(again) {
  lookAgain = again;
  const section = byId("batches");
  section.querySelector("[data-newest]").addEventListener("click", () => turnTo(null));
  section.querySelector("[data-older]").addEventListener("click", (event) => turnTo(event.target.dataset.after));
}

export async function look() {
  const page = after;
  const found = await get(`v1/batches?limit=${SHOWN}${page ? `&after=${encodeURIComponent(page)}` : ""}`);
  if (page !== after) return 0;
  const section = byId("batches");
  section.querySelector("[data-empty]").hidden = found.data.length > 0;
  section.querySelector("[data-newest]").hidden = page === null;
  const older = section.querySelector("[data-older]");
  older.hidden = !found.has_more;
  older.dataset.after = found.last_id ?? "";
  show(section.querySelector("[data-list]"), found.data, { keyOf: (batch) => batch.id, make, update });
  await Promise.all(found.data.map(showFailures));
  return found.data.every(isOver) ? SECONDS_QUIET : SECONDS_RUNNING;
}

export function clear() {
  seen.clear();
  forget();
  after = null;
  byId("batches").querySelector("[data-list]").replaceChildren();
}

function turnTo(cursor) {
  after = cursor;
  lookAgain();
}

function make({ id }) {
  const card = stamp("batch-card");
  const when = (meanwhile, act) => async (event) => {
    const button = event.target;
    button.disabled = true;
    write(card, { says: meanwhile });
    try {
      write(card, { says: await act() });
    } catch (error) {
      write(card, { says: error.message });
    }
    button.disabled = false;
  };
  const save = (path, name) => when("Downloading…", async () => {
    await download(path(), name);
    return `Saved as ${name}`;
  });
  const failedRows = () => `v1/files/${encodeURIComponent(seen.get(id).batch.error_file_id)}/content`;
  card.querySelector("[data-results]").addEventListener("click", save(() => `v1/batches/${id}/results`, `${id}.jsonl`));
  card.querySelector("[data-failed]").addEventListener("click", save(failedRows, `${id}-failed.jsonl`));
  const merged = () => `v1/batches/${id}/results?with_retries=true`;
  card.querySelector("[data-merged]").addEventListener("click", save(merged, `${id}-with-retries.jsonl`));
  card.querySelector("[data-retry]").addEventListener("click", when("Choosing rows…", async () => {
    const { id: made } = await post(`v1/batches/${id}/retry`);
    lookAgain();
    return `Its failed rows run again: ${made}`;
  }));
  card.querySelector("[data-cancel]").addEventListener("click", () => askToCancel(seen.get(id).batch, lookAgain));
  return card;
}

function update(card, batch) {
  announce(batch, seen.get(batch.id)?.batch);
  seen.set(batch.id, { batch, card });
  write(card, batchTexts(batch));
  card.querySelector(".badge").dataset.tone = tone(batch.status);
  const bar = card.querySelector("[data-bar]");
  bar.hidden = isOver(batch);
  bar.ariaLabel = `Progress of ${titleOf(batch)}`;
  if (batch.request_counts.total) bar.value = share(batch);
  else bar.removeAttribute("value");
  const ran = isOver(batch) && batch.request_counts.total > 0 && batch.status !== "failed";
  const hasResults = ran || batch.output_file_id !== null || batch.error_file_id !== null;
  card.querySelector("[data-results]").hidden = !hasResults;
  card.querySelector("[data-merged]").hidden = !hasResults || batch.gpuyard.retried_by.length === 0;
  card.querySelector("[data-failed]").hidden = batch.error_file_id === null;
  card.querySelector("[data-retry]").hidden = unanswered(batch) === 0;
  card.querySelector("[data-cancel]").hidden = isOver(batch) || ["cancelling", "finalizing"].includes(batch.status);
}

async function showFailures(batch) {
  const { lines, looked } = await failuresOf(batch);
  const { card } = seen.get(batch.id) ?? {};
  if (!card) return;
  showLines(card.querySelector("[data-errors]"), lines, "error-line", (line, error) =>
    write(line, { count: error.count ? `${number(error.count)} ×` : "", code: error.code, message: error.message ?? "" }),
  );
  write(card, { looked });
}

/** Say aloud, to who listens and does not look, that a batch changed its state or has another quarter behind it. */
function announce(batch, before) {
  if (!before) return;
  const quarter = Math.floor(share(batch) * 4);
  if (batch.status !== before.status) byId("news").textContent = `${titleOf(batch)} is ${batch.status.replaceAll("_", " ")}`;
  else if (quarter > Math.floor(share(before) * 4)) byId("news").textContent = `${titleOf(batch)}: ${quarter * 25} % done`;
}
