// Signing in and out, and who asks for what how often.

import { ApiError, get, key } from "./api.js";
import * as batches from "./batches.js";
import { byId } from "./dom.js";
import * as pools from "./pools.js";
import { Poll } from "./polling.js";
import * as submit from "./submit.js";
import * as workers from "./workers.js";

const SECTIONS = { batches, workers, pools };
const IN_A_HEADER = /^[\x21-\x7e]+$/;
let polls = {};

function start() {
  byId("key-form").addEventListener("submit", signIn);
  byId("leave").addEventListener("click", () => leave(""));
  const lookAgain = () => polls.batches?.now();
  batches.begin(lookAgain);
  submit.begin(lookAgain);
  if (key.get()) enter();
  else leave("");
}

async function signIn(event) {
  event.preventDefault();
  const given = byId("key").value.trim();
  if (!IN_A_HEADER.test(given)) return leave("A key has only letters, digits, and - or _.");
  key.set(given);
  try {
    await get("v1/pools");
  } catch (error) {
    // 403: a good key, which may not see pools; each part of the page says what it may not see.
    if (error.status !== 403) return leave(error.message);
  }
  enter();
}

function enter() {
  stop(); // whoever presses Enter twice comes here twice
  byId("key").value = "";
  byId("key-problem").textContent = "";
  byId("sign-in").hidden = true;
  byId("yard").hidden = byId("leave").hidden = false;
  for (const [name, section] of Object.entries(SECTIONS)) {
    const look = async () => {
      const seconds = await section.look();
      if (key.get()) tell(name, "");
      return seconds;
    };
    polls[name] = new Poll(look, (error, wait) => failed(name, error, wait));
  }
  byId("files").focus();
}

/** Forget the key and all that it let us see. */
function leave(why) {
  key.forget();
  stop();
  for (const [name, section] of Object.entries(SECTIONS)) {
    section.clear();
    tell(name, "");
  }
  submit.clear();
  byId("news").textContent = "";
  byId("cancel-dialog").close();
  byId("yard").hidden = byId("leave").hidden = true;
  byId("sign-in").hidden = false;
  byId("key-problem").textContent = why;
  byId("key").focus();
}

function stop() {
  for (const poll of Object.values(polls)) poll.stop();
  polls = {};
}

function failed(name, error, wait) {
  if (!(error instanceof ApiError)) console.error(error);
  if (error.status === 401) leave(error.message);
  else if (error.status === 403) tell(name, `This key may not see this: ${error.message}`);
  else byId("connection").textContent = `${error.message} Next try in ${Math.round(wait)} s; what is shown may be old.`;
}

function tell(name, problem) {
  if (!problem) byId("connection").textContent = "";
  const place = byId(name).querySelector("[data-problem]");
  if (place.textContent !== problem) place.textContent = problem;
}

start();
