// What the overview's worker tells this tab: its own worker, or that of another tab of
// the same session.
import { ApiError } from "./client";
import { channelOf, patience, poller, type Command, type Told } from "./poll";
import { expire, session } from "./session";

type Listener = (told: Told) => void;

let listener: Listener = () => undefined;
let send: ((command: Command) => void) | undefined;
let others: BroadcastChannel | undefined;
let name: string | undefined;
const waiting = new Map<number, Listener>();
/** When the newest answer that came was asked for. */
let newest = 0;

function hear(told: Told): void {
  if ("refused" in told && told.refused === session.get()?.token) expire();
  const { number = NaN, asked = newest } = told;
  // What another tab asked for is news here too. One that a later one overtook tells what was before a press. It is
  // late by less than an answer may take: by more it is the clock that was set back.
  const waits = waiting.has(number);
  if (!waits && asked < newest && asked > newest - patience) return;
  newest = asked;
  if (!waits) return listener(told);
  // Nor does this tab wait for what it asked before.
  for (const [before, resolve] of waiting) {
    resolve(told);
    waiting.delete(before);
    if (before === number) break;
  }
}

/** Without a worker, or when its file does not come, the tab polls itself. */
function start(): (command: Command) => void {
  const self = () => poller(hear);
  try {
    const worker = new Worker(new URL("./worker.ts", import.meta.url), { type: "module" });
    let run = (command: Command) => worker.postMessage(command);
    worker.onmessage = ({ data }: MessageEvent<Told>) => hear(data);
    worker.onerror = () => {
      worker.terminate();
      run = self();
      use();
      // Who waits asks again.
      for (const number of waiting.keys()) hear({ failure: "unreachable", number });
    };
    return (command) => run(command);
  } catch {
    return self();
  }
}

function use(): void {
  const now = session.get();
  const who = now && !session.expired() ? { name: session.name(now), token: now.token } : null;
  send ??= start();
  send({ who });
  if (who?.name === name) return;
  name = who?.name;
  others?.close();
  others = undefined;
  if (name === undefined || !("BroadcastChannel" in self)) return;
  try {
    others = new BroadcastChannel(channelOf(name));
    others.onmessage = ({ data }: MessageEvent<Told>) => hear(data);
  } catch {
    // A browser that forbids storage has no channels either.
  }
}

/** Tells a listener what is heard though this tab has not asked. */
export function listen(told: Listener): void {
  listener = told;
  use();
  session.subscribe(use);
}

/** Asks now, for a page that has the answer of a tag. */
export function askNow(etag: string | null): Promise<Told> {
  if (session.expired()) return Promise.reject(new ApiError(401, "Sign in again to continue."));
  return new Promise((resolve) => {
    const number = Math.random();
    waiting.set(number, resolve);
    send?.({ ask: etag, number });
  });
}

/** The error of a failure, as the rest of the page knows it. */
export function errorOf(told: Extract<Told, { failure: unknown }>): Error {
  if (told.failure === "hung") return new DOMException("no answer in time", "TimeoutError");
  if (told.failure === "unreachable") return new TypeError("no answer");
  return new ApiError(told.failure.status, told.failure.detail);
}
