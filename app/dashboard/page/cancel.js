// Cancelling a batch, after a question.

import { post } from "./api.js";
import { titleOf } from "./batch_texts.js";
import { byId } from "./dom.js";
import { rows } from "./words.js";

/** Ask, and cancel when the answer is yes. Escape, or the button that has the focus, lets the batch run. */
export function askToCancel(batch, cancelled) {
  const dialog = byId("cancel-dialog");
  const yes = dialog.querySelector("[data-cancel]");
  byId("cancel-what").textContent = `${titleOf(batch)}: ${rows(batch.request_counts.total)}, ${batch.id}`;
  byId("cancel-problem").textContent = "";
  yes.disabled = false;
  dialog.querySelector("[data-keep]").onclick = () => dialog.close();
  yes.onclick = async () => {
    yes.disabled = true;
    try {
      await post(`v1/batches/${batch.id}/cancel`);
      dialog.close();
      cancelled();
    } catch (error) {
      byId("cancel-problem").textContent = error.message;
      yes.disabled = false;
    }
  };
  dialog.showModal();
}
