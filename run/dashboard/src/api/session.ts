// Who is signed in. The token is kept in memory, and in session storage where the
// browser allows it, so that it survives a reload. It is gone when the tab is closed.
import { Stored } from "./storage";

export interface Session {
  token: string;
  customerID: number;
  email: string;
  /** Milliseconds since the epoch. */
  expires: number;
}

const stored = new Stored("sessionStorage", "coldaisle.session");
const listeners = new Set<() => void>();
let current: Session | null = restore();
let kept = current !== null;
let expired = current !== null && current.expires <= Date.now();
let timer: ReturnType<typeof setTimeout> | undefined;
arm();

function restore(): Session | null {
  try {
    const found = JSON.parse(stored.get() ?? "null") as Session | null;
    return found && typeof found.token === "string" ? found : null;
  } catch {
    return null;
  }
}

function arm(): void {
  clearTimeout(timer);
  if (current && !expired) timer = setTimeout(expire, Math.max(0, current.expires - Date.now()));
}

function changed(): void {
  arm();
  for (const listener of listeners) listener();
}

/** The claims that the page needs. The API checks the signature, not the page. */
export function claimsOf(token: string): { customerID: number; expires: number } {
  const payload = (token.split(".")[1] ?? "").replaceAll("-", "+").replaceAll("_", "/");
  const claims = JSON.parse(atob(payload)) as { sub: string; exp: number };
  return { customerID: Number(claims.sub), expires: claims.exp * 1000 };
}

export const session = {
  get: () => current,
  /** Whether the session has ended while the page is open, so that the user must sign in again. */
  expired: () => expired,
  /** Whether it survives a reload. */
  kept: () => kept,
  subscribe(listener: () => void): () => void {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
  start(token: string, email: string): void {
    current = { token, email, ...claimsOf(token) };
    expired = false;
    kept = stored.set(JSON.stringify(current));
    changed();
  },
  end(): void {
    current = null;
    expired = false;
    stored.set(null);
    changed();
  },
};

/** The API refused the token, or the token has expired. */
export function expire(): void {
  if (!current || expired) return;
  expired = true;
  changed();
}
