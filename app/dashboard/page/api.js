// The HTTP API. The key goes into the Authorization header of each call, and into nothing else.

const STORED_AS = "gpuyard-key";
const PATIENCE_MS = 30_000;

export class ApiError extends Error {
  /** `status` is 0 when the server was not reached; `message` is fit for people. */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const key = {
  get: () => sessionStorage.getItem(STORED_AS),
  set: (value) => sessionStorage.setItem(STORED_AS, value),
  forget: () => sessionStorage.removeItem(STORED_AS),
};

/** Read an object. What was asked for with a key that is forgotten by now is thrown away, whoever has signed in since. */
export async function get(path) {
  const asked = key.get();
  const found = await answer("GET", path);
  if (key.get() !== asked) throw new ApiError(0, "Signed out meanwhile.");
  return found;
}

/** Read a list to its end, page after page. */
export async function each(path) {
  const found = [];
  for (let after = ""; ; ) {
    const page = await get(path + after);
    found.push(...page.data);
    if (!page.has_more || page.data.length === 0) return found;
    after = `?after=${encodeURIComponent(page.data.at(-1).id)}`;
  }
}

export const post = (path, body = {}) => answer("POST", path, JSON.stringify(body));

/** Fetch a file and hand it to the browser's downloads. A plain link could not carry the key. */
export async function download(path, name) {
  const fetched = () => reached(async () => (await call("GET", path)).blob());
  const content = await fetched().catch((error) => {
    if (error.status !== 0) throw error;
    // A damaged file breaks off before the first wrong byte. Asked once more, the server says what is wrong.
    return fetched();
  });
  const url = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** Upload an input file; `onProgress` hears the share that is sent. fetch() tells nothing of it, so XMLHttpRequest. */
export function upload(file, onProgress) {
  const form = new FormData();
  form.append("purpose", "batch");
  form.append("file", file, file.name.toWellFormed());
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", address("v1/files"));
    request.setRequestHeader("authorization", `Bearer ${key.get()}`);
    request.upload.onprogress = (event) => event.lengthComputable && onProgress(event.loaded / event.total);
    request.onerror = () => reject(unreached());
    request.onload = () => {
      if (request.status === 200) resolve(JSON.parse(request.responseText));
      else reject(new ApiError(request.status, problemIn(request.responseText, request.status)));
    };
    request.send(form);
  });
}

/** Ask for an answer and read it to its end. A server that hangs, or a network that lost it, would keep us for minutes. */
const answer = (method, path, body) =>
  reached(async () => (await call(method, path, { body, signal: AbortSignal.timeout(PATIENCE_MS) })).json());

async function reached(asking) {
  try {
    return await asking();
  } catch (error) {
    throw error instanceof ApiError ? error : unreached();
  }
}

async function call(method, path, more = {}) {
  const headers = { authorization: `Bearer ${key.get()}` };
  if (more.body !== undefined) headers["content-type"] = "application/json";
  const options = { method, headers, cache: "no-store", credentials: "omit", ...more };
  const found = await fetch(address(path), options);
  if (!found.ok) throw new ApiError(found.status, problemIn(await found.text(), found.status));
  return found;
}

// Below the page's own address, so that a proxy may serve all of it under a prefix.
const address = (path) => new URL(path, document.baseURI);

const unreached = () => new ApiError(0, "The server does not answer.");

function problemIn(text, status) {
  try {
    return JSON.parse(text).error.message;
  } catch {
    return `The server answered ${status}.`;
  }
}
