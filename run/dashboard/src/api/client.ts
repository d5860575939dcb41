// The typed client: paths and bodies are those of the service's OpenAPI document.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema";
import { expire, session } from "./session";
import { readServiceTime } from "./time";

type Schemas = components["schemas"];
export type Room = Schemas["Room"];
export type Sensor = Schemas["Sensor"];
export type Correction = Schemas["Correction"];
export type Gateway = Schemas["Gateway"];
export type Person = Schemas["ListedPerson"];
export type Invitation = Schemas["InvitationFields"];
export type ApiKey = Schemas["ApiKey"];
export type Watch = Schemas["Watch"];
export type LoggedChange = Schemas["LoggedChange"];
export type DiscoveredNode = Schemas["DiscoveredNode"];
export type Reading = Schemas["ReadingBody"];
export type MaintenanceScope = Schemas["MaintenanceScopeBody"];
export type Bucket = Schemas["BucketBody"];
export type Thresholds = Schemas["Thresholds"];
export type Prediction = Schemas["Prediction"];
export type TrainingRun = Schemas["TrainingRun"];

/** An answer that is not a success, with its status and its detail. */
export class ApiError extends Error {
  constructor(readonly status: number, detail: string) {
    super(detail);
  }
}

/** How long an answer may take, its body included, before the page says that there is none: milliseconds. */
function patience(request: Request): number {
  // A download is as long as it is, a preview and a report read months: the service gives it up after 30 s.
  if (request.url.includes("format=csv")) return 600_000;
  return /\/rules\/preview$|\/data\/report\//.test(request.url) ? 40_000 : 10_000;
}

/** Newest answers by address, which the service need not send again: it answers 304. They are this session's, and on no disk. */
const answers = new Map<string, { etag: string; text: string }>();
const mostAnswers = 20;
session.subscribe(() => answers.clear());

async function ask(request: Request): Promise<Response> {
  const asks = request.method === "GET";
  const before = asks ? answers.get(request.url) : undefined;
  if (before) request.headers.set("If-None-Match", before.etag);
  const asked = Date.now();
  const response = await fetch(request, { signal: AbortSignal.any([request.signal, AbortSignal.timeout(patience(request))]) });
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

export const api = createClient<paths, "application/json">({ baseUrl: "/", headers: { "Content-Type": "application/json" }, fetch: ask });

api.use({
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

export type Call<T> = Promise<{ data?: T; error?: unknown; response: Response }>;

/** A part of a list, the cursor of the next one, and how many items all have. */
export interface Page<T> { items: T[]; next: string | undefined; total: number }

/** A page of a list that the API gives page by page. */
export async function pageOf<T>(call: Call<T[]>): Promise<Page<T>> {
  const items = await unwrap(call);
  const { headers } = (await call).response;
  const [, next] = /^<([^>]*)>/.exec(headers.get("Link") ?? "") ?? [];
  return { items, total: Number(headers.get("X-Total-Count") || items.length), next: next === undefined ? undefined : new URL(next, location.href).searchParams.get("after") ?? undefined };
}

/** All of such a list, however many pages it has. Tells after each page what has come. */
export async function allOf<T>(ask: (after: string | undefined) => Call<T[]>, tell?: (found: readonly T[]) => void): Promise<T[]> {
  const all: T[] = [];
  for (let after: string | undefined; ;) {
    const { items, next }: Page<T> = await pageOf(ask(after));
    all.push(...items);
    tell?.(all);
    if (next === undefined) return all;
    after = next;
  }
}

/** The body of a success. Throws an ApiError for everything else. */
export async function unwrap<T>(call: Call<T>): Promise<T> {
  const { data, error, response } = await call;
  if (response.ok) return data as T;
  const detail = (error as { detail?: string } | undefined)?.detail;
  throw new ApiError(response.status, detail ?? `The service answered ${response.status}.`);
}

/** Whether there was no answer in time. */
export const hung = (error: unknown) => error instanceof DOMException && error.name === "TimeoutError";

/** The text that a user sees for an error. */
export function messageOf(error: unknown): string {
  if (error instanceof ApiError) return error.message;
  if (hung(error)) return "The service does not answer.";
  return "The service cannot be reached.";
}
