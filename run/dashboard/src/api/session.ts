// Who is signed in. The token is kept in memory, and in session storage where the
// browser allows it, so that it survives a reload. Tabs tell each other: a new one is
// signed in where another is, and when the last one is closed the token is gone.
import { Stored } from "./storage";

export interface Session {
  token: string;
  customerID: number;
  /** Who of the account; 0 for an API key. */
  person: number;
  email: string;
  /** When it ends by this computer's clock, however wrong that is: milliseconds since the epoch. */
  expires: number;
  /** Of an API key: it reads alone, shows the wall, and is no other tab's. */
  key?: true;
}

const stored = new Stored("sessionStorage", "coldaisle.session");
const listeners = new Set<() => void>();
let current: Session | null = restore();
let kept = !!current;
let expired = !!current && current.expires <= Date.now();
let timer: ReturnType<typeof setTimeout> | undefined;
const tabs = openTabs();
arm();

function restore(): Session | null {
  try {
    return whole(JSON.parse(stored.get() ?? "null") as Session);
  } catch {
    return null;
  }
}

/** A session that an earlier release kept, or its page has, does not say whose it is; its token does. */
function whole(found: Session): Session {
  return { ...(!found.key && claimsOf(found.token)), ...found };
}

function arm(): void {
  clearTimeout(timer);
  if (current && !expired && !current.key) timer = setTimeout(expire, Math.max(0, current.expires - Date.now()));
}

type Told = { ask: true } | { started: Session } | {
  /** The account that was signed out of. */
  ended: number;
  /** Who of it; none from a page of an earlier release, which means everybody. */
  person?: number;
};

/** The other tabs of this browser; undefined where it has no such channel. */
function openTabs(): BroadcastChannel | undefined {
  let channel: BroadcastChannel;
  try {
    channel = new BroadcastChannel("coldaisle.session");
  } catch {
    return undefined;
  }
  channel.onmessage = ({ data }: MessageEvent<Told>) => {
    if ("ask" in data) {
      if (current && !expired && !current.key) channel.postMessage({ started: current } satisfies Told);
    } else if ("started" in data) {
      // Another person's session is another tab's own, of the same account too.
      const started = whole(data.started);
      if (!current || (current.person === started.person && (expired || started.expires > current.expires))) {
        adopt(started);
      }
    } else if (current?.customerID === data.ended && (!data.person || current.person === data.person)) {
      adopt(null);
    }
  };
  if (!current || expired) channel.postMessage({ ask: true } satisfies Told);
  return channel;
}

/** Null signs out. */
function adopt(started: Session | null): void {
  current = started;
  expired = false;
  kept = stored.set(current && JSON.stringify(current));
  changed();
}

function changed(): void {
  arm();
  for (const listener of listeners) listener();
}

/** The claims that the page needs, of a token that was made just now. The API checks the signature, not the page. */
function claimsOf(token: string): { customerID: number; person: number; expires: number } {
  const payload = token.split(".")[1]!.replaceAll("-", "+").replaceAll("_", "/");
  const { sub, person, iat, exp } =
    JSON.parse(atob(payload)) as { sub: string; person: number; iat: number; exp: number };
  return { customerID: +sub, person, expires: Date.now() + (exp - iat) * 1000 };
}

export const session = {
  get: () => current,
  /** Whether the session has ended while the page is open, so that the user must sign in again. */
  expired: () => expired,
  /** Milliseconds until it ends. */
  left: () => (current?.expires ?? 0) - Date.now(),
  /** Whether it survives a reload. */
  kept: () => kept,
  /** Tabs of one name show the same, and that it was refused: another person's token may be good still. */
  name: ({ key, token, customerID, person }: Session) => (key ? `key ${token.slice(-8)}` : `${customerID}.${person}`),
  subscribe(listener: () => void): () => void {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
  start(token: string, email: string): void {
    const started = { token, email, ...claimsOf(token) };
    adopt(started);
    tabs?.postMessage({ started } satisfies Told);
  },
  /** Who is signed in has another address now. */
  move(email: string): void {
    if (current) adopt({ ...current, email });
  },
  startKey(token: string): void {
    adopt({ token, customerID: 0, person: 0, email: "", expires: 9e15, key: true });
  },
  end(): void {
    if (current && !current.key) {
      tabs?.postMessage({ ended: current.customerID, person: current.person } satisfies Told);
    }
    adopt(null);
  },
};

/** The API refused the token, or the token has expired. */
export function expire(): void {
  if (!current || expired) return;
  expired = true;
  changed();
}
