// Sending files as batches: chosen, or dropped anywhere on the page.

import { post, upload } from "./api.js";
import { byId } from "./dom.js";

const FIRST_BYTES = 64 * 1024;
const MOST_BYTES = 64 * 1024 * 1024;
const MAX_METADATA = 512;
let visit = 0; // a number for each signing in

export function begin(sent) {
  const form = byId("submit-form");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = form.querySelector("button");
    button.disabled = true;
    await sendAll([...byId("files").files], sent);
    button.disabled = false;
  });
  takeDrops(form.querySelector(".drop"));
}

/** Forget what was chosen and said. What is on its way becomes no batch of whoever signs in next, and says nothing. */
export function clear() {
  visit += 1;
  byId("submit-form").reset();
  byId("submit-form").querySelector("button").disabled = false;
  byId("upload").hidden = true;
  byId("submit-says").textContent = "";
}

/** A file that is dropped beside its place would replace the page, so the whole window is its place. */
function takeDrops(zone) {
  const over = (isOver) => (event) => {
    event.preventDefault();
    zone.classList.toggle("over", isOver);
  };
  window.addEventListener("dragover", over(true));
  window.addEventListener("dragleave", over(false));
  window.addEventListener("drop", (event) => {
    over(false)(event);
    if (!event.dataTransfer.files.length || byId("yard").hidden) return;
    byId("files").files = event.dataTransfer.files;
    byId("submit-form").querySelector("button").focus();
  });
}

async function sendAll(files, sent) {
  const bar = byId("upload");
  const ours = visit;
  const outcomes = [];
  bar.hidden = false;
  for (const file of files) {
    say([...outcomes, `Sending ${file.name}`]);
    bar.value = 0;
    try {
      const wanted = await describe(file);
      const { id } = await upload(file, (share) => { bar.value = share; });
      if (visit !== ours) return;
      const batch = await post("v1/batches", { input_file_id: id, ...wanted });
      outcomes.push(`${file.name} is sent: ${batch.id}`);
      sent();
    } catch (error) {
      outcomes.push(`${file.name} is not sent. ${error.message}`);
    }
    if (visit !== ours) return;
  }
  bar.hidden = true;
  byId("files").value = "";
  say(outcomes);
}

/** What there is to say of a batch before its file is sent. */
async function describe(file) {
  return {
    endpoint: await endpointOf(file),
    completion_window: byId("window").value,
    pool: byId("pool").value || null,
    metadata: { file_name: [...file.name.toWellFormed()].slice(0, MAX_METADATA).join("") },
  };
}

/** The `url` of the first row; the server checks that all rows have it. */
async function endpointOf(file) {
  const line = await firstLine(file);
  try {
    const { url } = JSON.parse(line);
    if (typeof url === "string") return url;
  } catch {
    // said below
  }
  throw new Error("Its first line is no JSON object with a url, such as /v1/chat/completions.");
}

async function firstLine(file) {
  for (let bytes = FIRST_BYTES; ; bytes *= 4) {
    const [line, ...others] = (await file.slice(0, bytes).text()).trimStart().split("\n", 2);
    if (others.length || bytes >= Math.min(file.size, MOST_BYTES)) return line;
  }
}

function say(lines) {
  byId("submit-says").textContent = lines.join("\n");
}
