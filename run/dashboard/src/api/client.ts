// The typed client: paths and bodies are those of the service's OpenAPI document.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema";
import { expire, session } from "./session";

type Schemas = components["schemas"];
export type Room = Schemas["Room"];
export type Sensor = Schemas["Sensor"];
export type Gateway = Schemas["Gateway"];
export type DiscoveredNode = Schemas["DiscoveredNode"];
export type Reading = Schemas["ReadingBody"];
export type Bucket = Schemas["BucketBody"];
export type Windows = Schemas["WindowStats"];
export type Thresholds = Schemas["Thresholds"];
export type Prediction = Schemas["Prediction"];
export type TrainingRun = Schemas["TrainingRun"];

/** An answer that is not a success, with its status and its detail. */
export class ApiError extends Error {
  constructor(readonly status: number, detail: string) {
    super(detail);
  }
}

export const api = createClient<paths, "application/json">({ baseUrl: "/", headers: { "Content-Type": "application/json" } });

api.use({
  onRequest({ request }) {
    const now = session.get();
    if (session.expired()) throw new ApiError(401, "Sign in again to go on.");
    if (now) request.headers.set("Authorization", `Bearer ${now.token}`);
    return request;
  },
  onResponse({ response, request }) {
    const sent = request.headers.get("Authorization");
    // A 401 for an older token does not end the present session.
    if (response.status === 401 && sent === `Bearer ${session.get()?.token}`) expire();
  },
});

/** The body of a success. Throws an ApiError for everything else. */
export async function unwrap<T>(call: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<T> {
  const { data, error, response } = await call;
  if (response.ok) return data as T;
  const detail = (error as { detail?: string } | undefined)?.detail;
  throw new ApiError(response.status, detail ?? `The service answered ${response.status}.`);
}

/** The text that a user sees for an error. */
export function messageOf(error: unknown): string {
  if (error instanceof ApiError) return error.message;
  return "The service cannot be reached.";
}
