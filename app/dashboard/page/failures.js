// Why rows of a batch failed. Asked for only when there is something new to hear, and of a running batch now and then.

import { get } from "./api.js";
import { isOver } from "./batch_texts.js";
import { number } from "./words.js";

const SHOWN = 5;
const FRESH_MS = 10_000;
const known = new Map();

export const forget = () => known.clear();

/** Give lines of {count, code, message}, the most frequent first, and on how many rows they are based. */
export async function failuresOf(batch) {
  if (batch.errors?.data.length) return invalid(batch.errors.data);
  const { failed } = batch.request_counts;
  if (!failed) return { lines: batch.gpuyard.top_errors, looked: "" };
  const found = await rowErrors(batch, failed);
  const ofShards = isOver(batch) ? [] : batch.gpuyard.top_errors;
  const part = found.rows < failed ? `Counted among ${number(found.rows)} of ${number(failed)} failed rows.` : "";
  const looked = found.gone ?? part;
  return { lines: [...ofShards, ...found.data], looked };
}

function invalid(errors) {
  const lines = errors.slice(0, SHOWN).map(({ code, message, line }) => ({
    code,
    message: line ? `line ${number(line)}: ${message}` : message,
  }));
  const more = errors.length - lines.length;
  return { lines, looked: more > 0 ? `${number(more)} more like these.` : "" };
}

async function rowErrors(batch, failed) {
  const mark = `${batch.status} ${failed}`;
  const last = known.get(batch.id);
  if (last && (last.mark === mark || (!isOver(batch) && Date.now() - last.at < FRESH_MS))) return last.found;
  const found = await get(`v1/batches/${batch.id}/errors`).catch(unlessGone);
  known.set(batch.id, { mark, at: Date.now(), found });
  return found;
}

/** One batch whose contents are gone keeps nobody from seeing the others. */
function unlessGone(error) {
  if (error.status !== 404) throw error;
  return { rows: 0, data: [], gone: `Why rows failed is not known: ${error.message}` };
}
