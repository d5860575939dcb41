// A file of the page that does not come.
import { ApiError } from "./client";
import { session } from "./session";

/**
 * After a release the chunks have new names, and the page must be reloaded to know
 * them. It reloads by itself, once. It does not while the API cannot be reached, nor
 * where a reload would sign the user out, or drop what they typed.
 */
export async function recover(cause: unknown, typed = false): Promise<never> {
  const answer = await fetch("/", { method: "HEAD", cache: "no-store", signal: AbortSignal.timeout(10_000) })
    .catch(() => null);
  if (!answer) throw cause;
  if (!answer.ok) throw new ApiError(answer.status);
  const kept = session.kept();
  if (!kept || typed || reloaded() || document.querySelector("form :is(:focus, :user-valid, :user-invalid)")) {
    throw new ApiError(404, "A file is missing, or was lost on the way. If it stays so, reload this window"
      + (kept ? "." : " and sign in again."));
  }
  markReloaded(true);
  location.reload();
  return new Promise(() => undefined);
}

// The state of the history entry says that the page has been reloaded: it survives the
// reload, and browsers always allow it. It stays when a chunk was loaded, because
// another one may still be missing.
const reloaded = () => (history.state as { reloaded?: boolean } | null)?.reloaded === true;

export function markReloaded(value: boolean): void {
  history.replaceState({ ...(history.state as object | null), reloaded: value }, "");
}
