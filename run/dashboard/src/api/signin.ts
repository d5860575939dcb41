// Signing in does not use the client's middleware: it needs no token, and its 401
// means a wrong password.
import { ApiError } from "./client";
import type { Role } from "../logic/roles";
import { session } from "./session";
import { readServiceTime } from "./time";

/** How long an answer may take: milliseconds. */
const patience = 10_000;

async function post(path: string, body: object): Promise<unknown> {
  const asked = Date.now();
  const response = await fetch(path, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
    signal: AbortSignal.timeout(patience),
  });
  readServiceTime(response, asked);
  const answer = (await response.json().catch(() => ({}))) as { detail?: string };
  if (!response.ok) throw new ApiError(response.status, answer.detail);
  return answer;
}

export async function signIn(email: string, password: string): Promise<void> {
  const answer = (await post("/api/v1/customers/login", { email, password })) as { access_token: string };
  session.start(answer.access_token, email);
}

export interface Accepted { username: string; email: string; role: Role; invited_by: string; accepted: boolean }

/** Asks what an invitation is for; with a name and a password accepts it and signs in. */
export async function acceptInvitation(body: { code: string; name?: string; password?: string }): Promise<Accepted> {
  const answer = (await post("/api/v1/invitations/accept", body)) as Accepted;
  if (answer.accepted && body.password !== undefined) await signIn(answer.email, body.password);
  return answer;
}

/**
 * Begins a session of an API key, which a screen on a wall may keep: it cannot change
 * anything. A key that may is refused: no incident has this number.
 */
export async function beginWithKey(key: string): Promise<void> {
  const ask = (method: string, path: string, body?: string) => fetch(path, {
    method, headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
    signal: AbortSignal.timeout(patience), ...(body === undefined ? {} : { body }),
  });
  const overview = await ask("GET", "/api/v1/overview");
  if (overview.status === 401) throw new ApiError(401, "The service does not know this key.");
  if (!overview.ok) throw new ApiError(overview.status);
  const change = await ask("POST", "/api/v1/incidents/0/actions", "{}");
  if (change.status >= 500 || change.status === 429) throw new ApiError(change.status);
  if (change.status !== 403) {
    throw new ApiError(change.status, "This key may change things. Make one with the scope read.");
  }
  session.startKey(key);
}

export async function signUp(email: string, username: string, password: string): Promise<void> {
  await post("/api/v1/customers/register", { email, username, password });
  await signIn(email, password);
}
