// Who is signed in. The token lives in memory, and where the browser allows it in
// session storage, so that a reload keeps it; it ends with the tab.
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

/** The claims that the page needs; the service, not the page, checks the signature. */
export function claimsOf(token: string): { customerID: number; expires: number } {
  const payload = (token.split(".")[1] ?? "").replaceAll("-", "+").replaceAll("_", "/");
  const claims = JSON.parse(atob(payload)) as { sub: string; exp: number };
  return { customerID: Number(claims.sub), expires: claims.exp * 1000 };
}

export const session = {
  get: () => current,
  /** Whether the page stays, but must ask to sign in again. */
  expired: () => expired,
  /** Whether a reload keeps it. */
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

/** The service refused the token, or its time is over. */
export function expire(): void {
  if (!current || expired) return;
  expired = true;
  changed();
}
