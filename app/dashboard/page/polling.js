// Asking again and again, seldom when nobody looks or nobody answers.

const LONGEST_MS = 60_000;

/**
 * Call `look` now and then; it gives the seconds until it is to be called again. When it throws, the next call comes
 * after twice the time of the last, and `failed` hears why. Nothing is asked while the tab is hidden.
 */
export class Poll {
  #timer = null;
  #failures = 0;
  #stopped = false;
  #running = false;
  #again = false;

  constructor(look, failed) {
    this.look = look;
    this.failed = failed;
    this.seen = () => document.visibilityState === "visible" && this.now();
    document.addEventListener("visibilitychange", this.seen);
    this.now();
  }

  /** Look at once; while one look is out, right after it. */
  async now() {
    clearTimeout(this.#timer);
    if (this.#running) {
      this.#again = true;
      return;
    }
    this.#running = true;
    let wait = 0;
    do {
      this.#again = false;
      wait = await this.#once();
    } while (this.#again && !this.#stopped);
    this.#running = false;
    if (!this.#stopped && document.visibilityState === "visible") this.#timer = setTimeout(() => this.now(), wait);
  }

  stop() {
    this.#stopped = true;
    clearTimeout(this.#timer);
    document.removeEventListener("visibilitychange", this.seen);
  }

  async #once() {
    try {
      const seconds = await this.look();
      this.#failures = 0;
      return seconds * 1000;
    } catch (error) {
      this.#failures += 1;
      const wait = Math.min(LONGEST_MS, 1000 * 2 ** this.#failures) * (0.75 + Math.random() / 2);
      if (!this.#stopped) this.failed(error, wait / 1000);
      return wait;
    }
  }
}
