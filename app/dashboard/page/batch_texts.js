// What there is to say about a batch. Nothing here touches the page.

import { duration, joined, moment, number, rows } from "./words.js";

const OVER = new Set(["completed", "failed", "expired", "cancelled"]);

export const isOver = (batch) => OVER.has(batch.status);

/** The name of its file where the page sent it, else its id. */
export const titleOf = (batch) => batch.metadata?.file_name || batch.id;

/** How many of its rows have no answer, once it has ended. One whose input was refused has no rows. */
export const unanswered = (batch) => (isOver(batch) ? batch.request_counts.total - batch.request_counts.completed : 0);

/** How much of it is done, 0 to 1; rows that workers have not handed in yet count as well. */
export const share = (batch) => (batch.request_counts.total ? done(batch) / batch.request_counts.total : 0);

export function batchTexts(batch) {
  const ours = batch.gpuyard;
  return {
    title: titleOf(batch),
    status: batch.status.replaceAll("_", " "),
    facts: joined(`pool ${ours.pool}`, batch.model, batch.endpoint, moment(batch.created_at)),
    progress: isOver(batch) ? ending(batch) : progress(batch),
    waits: ours.damaged || (isOver(batch) ? "" : ours.waiting_reason),
    differs: joined(
      ours.answers_off_format > 0 && `${number(ours.answers_off_format)} answers are not the JSON that their rows asked for`,
      ours.answers_other_model > 0 && `${number(ours.answers_other_model)} answers name another model than their rows`,
    ),
    metadata: Object.entries(batch.metadata ?? {}).filter(([name]) => name !== "file_name").map(([name, value]) => `${name}: ${value}`).join(" · "),
    retries: joined(
      ours.retry_of && `runs rows of ${ours.retry_of} again`,
      ours.retried_by.length > 0 && `run again by ${ours.retried_by.join(", ")}`,
    ),
    id: batch.id,
  };
}

const live = (batch) => batch.gpuyard.live ?? { completed: 0, failed: 0 };

function done({ request_counts: counts, ...batch }) {
  const { completed, failed } = live(batch);
  return Math.min(counts.total, counts.completed + counts.failed + completed + failed);
}

function progress(batch) {
  const { gpuyard: ours, request_counts: counts } = batch;
  if (!counts.total) return "The file is being read.";
  const failed = counts.failed + live(batch).failed;
  return joined(
    `${number(done(batch))} of ${rows(counts.total)}`,
    failed > 0 && `${number(failed)} failed`,
    ours.workers > 0 && (ours.workers === 1 ? "1 worker" : `${ours.workers} workers`),
    ours.rows_per_second !== null && `${ours.rows_per_second.toFixed(ours.rows_per_second < 10 ? 1 : 0)} rows/s`,
    ours.eta_seconds !== null && `${duration(ours.eta_seconds)} left`,
  );
}

function ending(batch) {
  const { completed, failed, total } = batch.request_counts;
  const at = batch.completed_at ?? batch.failed_at ?? batch.expired_at ?? batch.cancelled_at;
  return joined(
    total > 0 && `${rows(total)}: ${number(completed)} answered, ${number(failed)} failed`,
    at && `took ${duration(at - batch.created_at)}`,
  );
}
