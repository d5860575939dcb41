// Who is signed in. The token lives in memory, and in session storage so that a
// reload keeps it; it ends with the tab.

export interface Session {
  token: string;
  customerID: number;
  email: string;
  /** Milliseconds since the epoch. */
  expires: number;
}

const key = "coldaisle.session";
const listeners = new Set<() => void>();
let current: Session | null = restore();
let expired = current !== null && current.expires <= Date.now();
let timer: ReturnType<typeof setTimeout> | undefined;
arm();

function restore(): Session | null {
  try {
    const stored = JSON.parse(sessionStorage.getItem(key) ?? "null") as Session | null;
    return stored && typeof stored.token === "string" ? stored : null;
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
  subscribe(listener: () => void): () => void {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
  start(token: string, email: string): void {
    current = { token, email, ...claimsOf(token) };
    expired = false;
    sessionStorage.setItem(key, JSON.stringify(current));
    changed();
  },
  end(): void {
    current = null;
    expired = false;
    sessionStorage.removeItem(key);
    changed();
  },
};

/** The service refused the token, or its time is over. */
export function expire(): void {
  if (!current || expired) return;
  expired = true;
  changed();
}
