// The queries of the pages, and how fresh each answer must be.
import { QueryClient, useQuery } from "@tanstack/preact-query";
import { useMemo } from "preact/hooks";
import { api, hung, unwrap, ApiError, type Bucket, type Room, type Sensor } from "./client";
import type { Overview } from "../logic/overview";
import { forgetTold, hearOverview } from "./alarm";
import { askNow, errorOf, listen } from "./live";
import type { Told } from "./poll";
import { byName } from "../logic/names";
import { session } from "./session";
import { setServiceTime } from "./time";

const second = 1000;
/** Nodes report every 30 s. With half of that the page is at most one reading behind. */
export const refreshEvery = 15 * second;
/** What has been is asked for anew every 5 minutes: it may cost money by the request. */
export const pastEvery = 300 * second;

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5 * second,
      // Only an API that cannot be reached is tried again at once: what it refuses, it refuses again, and
      // after one that hangs for 10 s the user is told.
      retry: (failures, error) => failures < 2 && !(error instanceof ApiError && error.status < 500) && !hung(error),
      refetchOnWindowFocus: true,
    },
  },
});

// When it is another person, or nobody, here or in another tab, and before anything is rendered:
// who signs in next must not see what was another's.
let whose = session.get()?.person;
session.subscribe(() => {
  const person = session.get()?.person;
  if (person === whose) return;
  whose = person;
  queryClient.removeQueries({ predicate: ({ queryKey: [what] }) => what !== "chunk" });
  forgetTold();
});

/** Polling stops in a hidden tab (the default of the library) and after the session has ended. */
const poll = () => (session.expired() ? false : refreshEvery);
/** Of what no node changes: a page may ask for two of them, and for the overview, 8 times a minute. */
export const pollSlowly = () => poll() && 2 * refreshEvery;
const me = () => session.get()?.customerID ?? 0;

const live = ["live"] as const;

export const keys = {
  /** All that the overview shows: what changes a room, a sensor, an incident or a rule makes this stale. */
  live,
  overview: [...live, "overview"] as const,
  rooms: [...live, "rooms"] as const,
  sensors: (roomID: number) => [...live, "sensors", roomID] as const,
  incidents: [...live, "incidents"] as const,
  excursions: [...live, "excursions"] as const,
  rules: [...live, "rules"] as const,
  suggestions: [...live, "suggestions"] as const,
  maintenance: [...live, "maintenance"] as const,
  gateways: ["gateways"] as const,
  discovered: ["discovered"] as const,
  presets: ["presets"] as const,
  thresholds: ["thresholds"] as const,
  predictions: ["predictions"] as const,
  runs: ["runs"] as const,
  learning: ["learning"] as const,
  profile: ["profile"] as const,
  persons: ["persons"] as const,
  invitations: ["invitations"] as const,
  apiKeys: ["api-keys"] as const,
  watches: ["watches"] as const,
  audit: ["audit"] as const,
};

/** Makes all stale whose keys begin like these, and waits for what is shown of it. */
export const refresh = (...changed: (readonly unknown[])[]) =>
  Promise.all(changed.map((queryKey) => queryClient.invalidateQueries({ queryKey })));

/** What the overview said last: the answer, and what its ETag was. */
type Seen = Overview & { etag: string | null };

function seen({ overview: text, etag, ahead }: Extract<Told, { etag: unknown }>): Seen {
  if (text === undefined) throw new ApiError(502, "The service answered nothing.");
  const overview = JSON.parse(text) as Overview;
  if (ahead !== undefined) setServiceTime(ahead, 250);
  hearOverview(overview);
  return { ...overview, etag };
}

/** What the worker told and no query has taken yet. */
let told: Told | undefined;

/** Rooms, sensors, newest readings and open incidents: the worker polls them, whether the tab is hidden or not. */
export function useOverview() {
  return useQuery({
    queryKey: keys.overview, staleTime: 5 * second,
    // It is replaced as a whole, and asked for even where the browser thinks
    // that it is offline. The worker tries again.
    structuralSharing: false, networkMode: "always", retry: false, enabled: session.get() !== null,
    queryFn: async ({ client }): Promise<Seen> => {
      const before = client.getQueryData<Seen>(keys.overview);
      const heard = told ?? await askNow(before?.etag ?? null);
      told = undefined;
      if ("failure" in heard) throw errorOf(heard);
      if (heard.overview) return seen(heard);
      if (before && before.etag === heard.etag) return before;
      // Unchanged for another tab, which saw what this one missed.
      const whole = await askNow(null);
      if ("failure" in whole) throw errorOf(whole);
      return seen(whole);
    },
  });
}

/** Names sensors by their ids; one that is gone keeps its id. */
export function useSensorNames(): (id: string) => string {
  const { data } = useOverview();
  const names = useMemo(() => new Map(data?.sensors.map(({ id, name }) => [id, name])), [data]);
  return (id) => names.get(id) ?? id;
}

/** Begins to take what the worker tells. */
export function followOverview(): void {
  addEventListener("online", () => void queryClient.refetchQueries({ queryKey: keys.overview, exact: true }));
  listen((heard) => {
    told = heard;
    void queryClient.refetchQueries({ queryKey: keys.overview, exact: true }, { cancelRefetch: false }).finally(() => {
      if (told === heard) told = undefined;
    });
  });
}

/** By name. */
export function useRooms() {
  return useQuery({
    queryKey: keys.rooms, staleTime: 60 * second, select: byName<Room>,
    queryFn: () =>
      unwrap(api.GET("/api/v1/server_rooms/list_rooms/{customer_id}", { params: { path: { customer_id: me() } } })),
  });
}

/** By name. */
export function useSensors(roomID: number) {
  return useQuery({
    queryKey: keys.sensors(roomID), staleTime: 60 * second, select: byName<Sensor>,
    queryFn: () => unwrap(api.GET("/api/v1/sensors/list_sensors/{room_id}", { params: { path: { room_id: roomID } } })),
  });
}

export function useSensor(id: string) {
  return useQuery({
    queryKey: ["sensor", id], staleTime: 60 * second,
    queryFn: () => unwrap(api.GET("/api/v1/sensors/sensor/{sensor_id}", { params: { path: { sensor_id: id } } })),
  });
}

/** Oldest first, revoked ones too. */
export function useGateways() {
  return useQuery({
    queryKey: keys.gateways, refetchInterval: pollSlowly, queryFn: () => unwrap(api.GET("/api/v1/gateways")),
  });
}

/** Nodes that the customer's gateways hear and that are no sensors, those heard last first. */
export function useDiscovered() {
  return useQuery({
    queryKey: keys.discovered, refetchInterval: pollSlowly,
    queryFn: () => unwrap(api.GET("/api/v1/gateways/nodes", { params: { query: { unclaimed: "true" } } })),
  });
}

/** The most incidents, and excursions, that the API lists at once. */
export const listLimit = 500;
/** How many of the history come at once. */
export const pageLength = 100;

/** One incident and what happened to it. */
export function useIncident(id: number) {
  return useQuery({
    queryKey: [...keys.incidents, "one", id],
    refetchInterval: pollSlowly, // what is over may come back by a late reading
    queryFn: () => unwrap(api.GET("/api/v1/incidents/{incident_id}", { params: { path: { incident_id: id } } })),
  });
}

/** The two thresholds first. */
export function useRules() {
  return useQuery({ queryKey: keys.rules, staleTime: 60 * second, queryFn: () => unwrap(api.GET("/api/v1/rules")) });
}

export function usePresets() {
  return useQuery({
    queryKey: keys.presets, staleTime: Infinity, queryFn: () => unwrap(api.GET("/api/v1/rules/presets")),
  });
}

export function useSuggestions() {
  return useQuery({ queryKey: keys.suggestions, staleTime: 60 * second,
    queryFn: () => unwrap(api.GET("/api/v1/rules/suggestions")) });
}

export function useMaintenance() {
  return useQuery({ queryKey: keys.maintenance, refetchInterval: 4 * refreshEvery,
    queryFn: () => unwrap(api.GET("/api/v1/maintenance")) });
}

export function useThresholds() {
  return useQuery({
    queryKey: keys.thresholds, staleTime: 60 * second,
    queryFn: () =>
      unwrap(api.GET("/api/v1/alerts/thresholds/{customer_id}", { params: { path: { customer_id: me() } } })),
  });
}

/** Readings of a range in milliseconds, in so many buckets at most. */
export async function history(id: string, start: number, end: number, points: number,
  signal?: AbortSignal): Promise<Bucket[]> {
  const query = {
    start_time: new Date(start).toISOString(), end_time: new Date(end).toISOString(), max_points: points,
  };
  const rows = await unwrap(
    api.GET("/api/v1/data/historical/{sensor_id}", { params: { path: { sensor_id: id }, query }, signal }),
  );
  return rows.flatMap((row) => ("count" in row ? [row] : []));
}

export function useHistory(id: string | undefined, start: number, end: number, points: number) {
  return useQuery<Bucket[]>({
    queryKey: ["history", id, start, end, points], staleTime: pastEvery, enabled: id !== undefined,
    placeholderData: (before, query) => (query?.queryKey[1] === id ? before : undefined),
    queryFn: ({ signal }) => history(id ?? "", start, end, points, signal),
  });
}

/** null while there is no model, or too little to forecast from. */
export function useForecast(id: string) {
  return useQuery({
    queryKey: ["forecast", id], refetchInterval: () => (poll() ? 4 * refreshEvery : false),
    queryFn: () =>
      unwrap(api.GET("/api/v1/ml/forecast/{sensor_id}", { params: { path: { sensor_id: id } } }))
        .catch((error: unknown) => {
          if (error instanceof ApiError && error.status === 404) return null;
          throw error;
        }),
  });
}

/** Who signs in for the account. */
export const personsQuery = { queryKey: keys.persons, queryFn: () => unwrap(api.GET("/api/v1/persons")) };
export const usePersons = () => useQuery(personsQuery);

export function useProfile() {
  return useQuery({
    queryKey: keys.profile, staleTime: Infinity,
    queryFn: () =>
      unwrap(api.POST("/api/v1/customers/info/{customer_id}", { params: { path: { customer_id: me() } } })),
  });
}
