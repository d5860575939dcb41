// The typed client: paths and bodies are those of the service's OpenAPI document.
import { recover } from "./release";
import type { requests } from "./requests";
import type { components } from "./schema";

type Client = typeof requests;
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
export type MaintenanceScope = Schemas["MaintenanceScopeBody"];
export type Bucket = Schemas["BucketBody"];
export type Suggestion = Schemas["Suggestion"];
export type Thresholds = Schemas["Thresholds"];
export type Prediction = Schemas["Prediction"];
export type TrainingRun = Schemas["TrainingRun"];

/** An answer that is not a success, with its status and its detail. */
export class ApiError extends Error {
  constructor(readonly status: number, detail?: string | null) {
    super(detail ?? `The service answered ${status}.`);
  }
}

/** The client of openapi-fetch, loaded when something but the overview is first asked for. */
let client: Promise<Client> | undefined;
const loaded = (typed: boolean) => client ??= import("./requests").then((file) => file.requests, (cause: unknown) => {
  client = undefined;
  return recover(cause, typed);
});
export const api = new Proxy({} as Client, {
  get: (_, method: keyof Client) => async (...asked: unknown[]) =>
    ((await loaded(method !== "GET"))[method] as (...asked: unknown[]) => unknown)(...asked),
});

export type Call<T> = Promise<{ data?: T; error?: unknown; response: Response }>;

/** A part of a list, the cursor of the next one, and how many items all have. */
export interface Page<T> { items: T[]; next: string | undefined; total: number }

/** A page of a list that the API gives page by page. */
export async function pageOf<T>(call: Call<T[]>): Promise<Page<T>> {
  const items = await unwrap(call);
  const { headers } = (await call).response;
  const [, next] = /^<([^>]*)>/.exec(headers.get("Link") ?? "") ?? [];
  return { items, total: Number(headers.get("X-Total-Count") || items.length),
    next: next === undefined ? undefined : new URL(next, location.href).searchParams.get("after") ?? undefined };
}

/** All of such a list, however many pages it has. Tells after each page what has come. */
export async function allOf<T>(ask: (after: string | undefined) => Call<T[]>,
  tell?: (found: readonly T[]) => void): Promise<T[]> {
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
  throw new ApiError(response.status, (error as { detail?: string } | undefined)?.detail);
}

/** Whether there was no answer in time. */
export const hung = (error: unknown) => error instanceof DOMException && error.name === "TimeoutError";

/** The text that a user sees for an error. */
export function messageOf(error: unknown): string {
  if (error instanceof ApiError) return error.message;
  if (hung(error)) return "The service does not answer.";
  return "The service cannot be reached.";
}
