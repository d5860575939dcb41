// Asks for the overview every 15 s, in a worker, so that a hidden tab is told as soon as
// a visible one. Of the tabs of one session one asks, the others are told what it heard.
import { byName } from "../logic/names";
import type { Overview } from "../logic/overview";

/** With half of the 30 s at which nodes report a page is at most one reading behind. */
const interval = 15_000;
/** What of the past that `make run` begins with has arrived, as the newest answer
 * told: it is asked for whole each 2 s. */
let past: string | null = null;
/** How long an answer may take, its body included. */
export const patience = 10_000;

/** Who asks: tabs of one name share their answers. */
export interface Who { name: string; token: string }

export type Command =
  | { who: Who | null }
  /** At once, for a page that has the answer of this tag; its number, no other tab's, comes back with the answer. */
  | { ask: string | null; number: number };

export type Told = Answer & {
  /** Of what was asked; none of a poll. */
  number?: number;
  /** When it was asked for, by this computer's clock: milliseconds. */
  asked?: number;
};

type Answer = {
  /** Without the overview where it is that of the tag still. */
  etag: string | null;
  /** As JSON: a page reads that in a fraction of the time that two thousand cloned objects take. */
  overview?: string;
  /** The service's clock less this one's, in milliseconds; only with an overview. */
  ahead?: number;
} | {
  failure: "hung" | "unreachable" | { status: number; detail: string | undefined };
  /** The token that was refused. */
  refused?: string;
};

export const channelOf = (name: string) => `coldaisle.overview.${name}`;

async function ask(token: string, etag: string | null, asked: number): Promise<Answer> {
  try {
    const response = await fetch("/api/v1/overview", {
      headers: { Authorization: `Bearer ${token}`, ...(etag === null ? {} : { "If-None-Match": etag }) },
      cache: "no-store", signal: AbortSignal.timeout(patience),
    });
    past = response.headers.get("Coldaisle-Past");
    if (response.status === 304) return { etag };
    if (!response.ok) {
      const { detail } = (await response.json().catch(() => ({}))) as { detail?: string };
      return { failure: { status: response.status, detail }, ...(response.status === 401 ? { refused: token } : {}) };
    }
    const overview = (await response.json()) as Overview;
    const ahead = Date.parse(overview.time) - (asked + Date.now()) / 2;
    // In order here: two thousand names take a slow computer's page longer than a frame.
    return { etag: response.headers.get("ETag"),
      overview: JSON.stringify({ ...overview, past, sensors: byName(overview.sensors) }), ahead };
  } catch (error) {
    return { failure: error instanceof DOMException && error.name === "TimeoutError" ? "hung" : "unreachable" };
  }
}

/** What a tab's worker does. Where there are no workers the tab does it itself. */
export function poller(tell: (told: Told) => void): (command: Command) => void {
  let who: Who | null = null;
  let turn = new AbortController();
  let channel: BroadcastChannel | undefined;
  let seen: string | null = null;
  let next: ReturnType<typeof setTimeout> | undefined;

  const answer = async (etag: string | null, number?: number) => {
    const asking = who;
    const asked = Date.now();
    const told: Told = asking ? await ask(asking.token, etag, asked) : { failure: "unreachable" };
    told.number = number;
    told.asked = asked;
    const same = who?.name === asking?.name;
    if (same && "etag" in told) seen = told.etag;
    clearTimeout(next);
    if (past && asking) next = setTimeout(() => void answer(null), 2000);
    // By the channel it comes to this tab too.
    if (same && channel) channel.postMessage(told);
    else tell(told);
  };
  const pollUntil = async (signal: AbortSignal) => {
    while (!signal.aborted) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, interval);
        signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
      });
      if (!signal.aborted) await answer(seen);
    }
  };
  const use = (next: Who | null) => {
    const same = next?.name === who?.name;
    who = next;
    if (same) return;
    turn.abort();
    turn = new AbortController();
    channel?.close();
    channel = undefined;
    seen = null;
    if (!next) return;
    const { signal } = turn;
    if (!("locks" in navigator) || !("BroadcastChannel" in self)) {
      void pollUntil(signal);
      return;
    }
    channel = new BroadcastChannel(channelOf(next.name));
    // The lock is free as soon as the tab that had it is closed.
    navigator.locks.request(channelOf(next.name), { signal }, () => pollUntil(signal)).catch(() => undefined);
  };
  return (command) => {
    if ("who" in command) use(command.who);
    else void answer(command.ask, command.number);
  };
}
