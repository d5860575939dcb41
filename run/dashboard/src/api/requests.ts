// Requests to the service, all but those of the overview: typed by its OpenAPI document.
import createClient from "openapi-fetch";
import { ApiError } from "./client";
import type { paths } from "./schema";
import { expire, session } from "./session";
import { readServiceTime } from "./time";

/** How long an answer may take, its body included, before the page says that there is none: milliseconds. */
function patience(request: Request): number {
  // A download is as long as it is, a preview and a report read months: the service gives it up after 30 s.
  if (/format=csv|\/records\//.test(request.url)) return 600_000;
  return /\/rules\/preview$|\/data\/report\//.test(request.url) ? 40_000 : 10_000;
}

/** Newest answers by address, which the service need not send again: it answers 304.
 * They are this session's, and on no disk. */
const answers = new Map<string, { etag: string; text: string }>();
const mostAnswers = 20;
session.subscribe(() => answers.clear());

async function ask(request: Request): Promise<Response> {
  const asks = request.method === "GET";
  const before = asks ? answers.get(request.url) : undefined;
  if (before) request.headers.set("If-None-Match", before.etag);
  const asked = Date.now();
  const response = await fetch(request, {
    signal: AbortSignal.any([request.signal, AbortSignal.timeout(patience(request))]),
  });
  readServiceTime(response, asked);
  const etag = response.headers.get("ETag");
  if (!asks || etag === null) return response;
  const answer = before && response.status === 304 ? before : { etag, text: await response.text() };
  // The newest is last.
  answers.delete(request.url);
  answers.set(request.url, answer);
  for (const [oldest] of answers) if (answers.size > mostAnswers) answers.delete(oldest);
  // An answer that has not changed may have more behind it than before.
  const headers = new Headers({ "Content-Type": "application/json" });
  for (const name of ["Link", "X-Total-Count"]) headers.set(name, response.headers.get(name) ?? "");
  return new Response(answer.text, { headers });
}

export const requests = createClient<paths, "application/json">({
  baseUrl: "/", headers: { "Content-Type": "application/json" }, fetch: ask,
});

requests.use({
  onRequest({ request }) {
    const now = session.get();
    if (session.expired()) throw new ApiError(401, "Sign in again to continue.");
    if (now) request.headers.set("Authorization", `Bearer ${now.token}`);
    return request;
  },
  onResponse({ response, request }) {
    const sent = request.headers.get("Authorization");
    // A 401 for an older token does not end the present session.
    if (response.status === 401 && sent === `Bearer ${session.get()?.token}`) expire();
  },
});
