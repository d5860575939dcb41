// The queries of the pages, and how fresh each answer must be.
import { QueryClient, useQueries, useQuery } from "@tanstack/react-query";
import { api, unwrap, ApiError, type Bucket, type Reading, type Room, type Sensor, type Windows } from "./client";
import type { Episode } from "../logic/episodes";
import { byName } from "../logic/names";
import { session } from "./session";

const second = 1000;
/** Nodes report every 30 s. With half of that the page is at most one reading behind. */
export const refreshEvery = 15 * second;

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5 * second,
      // Only an API that cannot be reached is tried again: what it refuses, it refuses again.
      retry: (failures, error) => failures < 2 && !(error instanceof ApiError && error.status < 500),
      refetchOnWindowFocus: true,
    },
  },
});

/** Polling stops in a hidden tab (the default of the library) and after the session has ended. */
const poll = () => (session.expired() ? false : refreshEvery);
const me = () => session.get()?.customerID ?? 0;

export const keys = {
  rooms: ["rooms"] as const,
  sensors: (roomID: number) => ["sensors", roomID] as const,
  gateways: ["gateways"] as const,
  discovered: ["discovered"] as const,
  alerts: ["alerts"] as const,
  thresholds: ["thresholds"] as const,
  predictions: ["predictions"] as const,
  runs: ["runs"] as const,
  profile: ["profile"] as const,
};

/** By name. */
export function useRooms() {
  return useQuery({
    queryKey: keys.rooms, staleTime: 60 * second, select: byName<Room>,
    queryFn: () => unwrap(api.GET("/api/v1/server_rooms/list_rooms/{customer_id}", { params: { path: { customer_id: me() } } })),
  });
}

const sensorsOf = (roomID: number) => ({
  queryKey: keys.sensors(roomID), staleTime: 60 * second, select: byName<Sensor>,
  queryFn: () => unwrap(api.GET("/api/v1/sensors/list_sensors/{room_id}", { params: { path: { room_id: roomID } } })),
});

/** By name. */
export function useSensors(roomID: number) {
  return useQuery(sensorsOf(roomID));
}

/** The sensors of all rooms, sorted by name in each room; undefined until every list is there. */
export function useAllSensors(rooms: readonly Room[] | undefined) {
  return useQueries({
    queries: (rooms ?? []).map((room) => sensorsOf(room.id)),
    combine: (lists) => ({
      error: lists.find((list) => list.error)?.error ?? null,
      retry: () => lists.forEach((list) => list.error && void list.refetch()),
      data: rooms && lists.every((list) => list.data) ? lists.flatMap((list): Sensor[] => list.data ?? []) : undefined,
    }),
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
  return useQuery({ queryKey: keys.gateways, refetchInterval: poll, queryFn: () => unwrap(api.GET("/api/v1/gateways")) });
}

/** Nodes that the customer's gateways hear and that are no sensors, those heard last first. */
export function useDiscovered() {
  return useQuery({
    queryKey: keys.discovered, refetchInterval: poll,
    queryFn: () => unwrap(api.GET("/api/v1/gateways/nodes", { params: { query: { unclaimed: "true" } } })),
  });
}

/** multi-sensor takes so many ids in one request. */
const idsPerRequest = 1000;

/** The latest reading of each sensor by id: one request for all of them. */
export function useLatest(ids: readonly string[] | undefined) {
  return useQuery({
    queryKey: ["latest", ids], enabled: ids !== undefined && ids.length > 0, refetchInterval: poll,
    placeholderData: (before) => before,
    queryFn: async () => {
      const latest: Record<string, Reading> = {};
      for (let i = 0; i < (ids?.length ?? 0); i += idsPerRequest) {
        const part = ids?.slice(i, i + idsPerRequest) ?? [];
        Object.assign(latest, await unwrap(api.POST("/api/v1/data/multi-sensor", { body: { node_ids: part } })));
      }
      return latest;
    },
  });
}

/** The most alerts, and the most episodes, that the API lists. */
export const listLimit = 500;

/** Episodes with unacknowledged alerts. */
export function useActiveEpisodes() {
  return useQuery({
    queryKey: [...keys.alerts, "active"], refetchInterval: poll,
    queryFn: () => unwrap(api.GET("/api/v1/alerts/episodes", { params: { query: { active: true, limit: listLimit } } })),
  });
}

export function usePastEpisodes(enabled: boolean) {
  return useQuery({
    queryKey: [...keys.alerts, "past"], refetchInterval: poll, enabled,
    queryFn: () => unwrap(api.GET("/api/v1/alerts/episodes", { params: { query: { limit: listLimit } } })),
  });
}

/** Episodes of one sensor in a range of milliseconds; without one, its newest. */
export function useEpisodesOf(id: string, range?: readonly [start: number, end: number]) {
  const bounds = range && { start_time: new Date(range[0]).toISOString(), end_time: new Date(range[1]).toISOString() };
  return useQuery({
    queryKey: [...keys.alerts, "sensor", id, range], refetchInterval: range ? false : poll,
    placeholderData: (before, query) => (query?.queryKey[2] === id ? before : undefined),
    queryFn: () => unwrap(api.GET("/api/v1/alerts/episodes", { params: { query: { sensor_id: id, limit: listLimit, ...bounds } } })),
  });
}

/** The alerts of an episode, newest first. */
export function useAlertsOf(episode: Episode) {
  return useQuery({
    queryKey: [...keys.alerts, "episode", episode], placeholderData: (before) => before,
    queryFn: async () => {
      const after = new Date(Date.parse(episode.end_time) + 1).toISOString();
      const query = { sensor_id: episode.sensor_id, start_time: episode.start_time, end_time: after, limit: listLimit };
      const alerts = await unwrap(api.GET("/api/v1/alerts/history", { params: { query } }));
      return alerts.filter((alert) => alert.alert_type === episode.alert_type);
    },
  });
}

export function useThresholds() {
  return useQuery({
    queryKey: keys.thresholds, staleTime: 60 * second,
    queryFn: () => unwrap(api.GET("/api/v1/alerts/thresholds/{customer_id}", { params: { path: { customer_id: me() } } })),
  });
}

function rows(id: string, start: number, end: number, points: number | undefined, signal?: AbortSignal) {
  const query = {
    start_time: new Date(start).toISOString(), end_time: new Date(end).toISOString(),
    ...(points === undefined ? {} : { max_points: points }),
  };
  return unwrap(api.GET("/api/v1/data/historical/{sensor_id}", { params: { path: { sensor_id: id }, query }, signal }));
}

/** Readings of a range in milliseconds, in so many buckets at most. */
export async function history(id: string, start: number, end: number, points: number, signal?: AbortSignal): Promise<Bucket[]> {
  return (await rows(id, start, end, points, signal)).flatMap((row) => ("count" in row ? [row] : []));
}

/** Every reading of a range in milliseconds. */
export function readings(id: string, start: number, end: number, signal?: AbortSignal): Promise<Reading[]> {
  return rows(id, start, end, undefined, signal);
}

export function useHistory(id: string, start: number, end: number, points: number) {
  return useQuery<Bucket[]>({
    queryKey: ["history", id, start, end, points], staleTime: 5 * 60 * second,
    placeholderData: (before, query) => (query?.queryKey[1] === id ? before : undefined),
    queryFn: ({ signal }) => history(id, start, end, points, signal),
  });
}

export function useStats(id: string) {
  return useQuery({
    queryKey: ["stats", id], staleTime: 60 * second, refetchInterval: 4 * refreshEvery,
    queryFn: async (): Promise<Partial<Windows>> => {
      const stats = await unwrap(api.GET("/api/v1/data/stats/{sensor_id}", { params: { path: { sensor_id: id } } }));
      return "windows" in stats ? stats.windows : {};
    },
  });
}

/** null while there is no model, or too little to forecast from. */
export function useForecast(id: string) {
  return useQuery({
    queryKey: ["forecast", id], refetchInterval: poll,
    queryFn: () =>
      unwrap(api.GET("/api/v1/ml/forecast/{sensor_id}", { params: { path: { sensor_id: id } } })).catch((error: unknown) => {
        if (error instanceof ApiError && error.status === 404) return null;
        throw error;
      }),
  });
}

export function usePredictions(status: "unvalidated" | "validated", limit: number) {
  return useQuery({
    queryKey: [...keys.predictions, status, limit], refetchInterval: status === "validated" ? false : 4 * refreshEvery,
    queryFn: () => unwrap(api.GET("/api/v1/prediction-feedback", { params: { query: { status, limit } } })),
  });
}

export function usePredictionStats() {
  return useQuery({
    queryKey: [...keys.predictions, "stats"],
    queryFn: () => unwrap(api.GET("/api/v1/prediction-feedback/stats")),
  });
}

export function useTrainingRuns() {
  return useQuery({
    queryKey: keys.runs,
    queryFn: () => unwrap(api.GET("/api/v1/ml/retraining/history", { params: { query: { limit: 50 } } })),
    // A run takes 3 to 5 seconds.
    refetchInterval: (query) => (query.state.data?.some((run) => run.status === "running") ? 2 * second : poll()),
  });
}

export function useProfile() {
  return useQuery({
    queryKey: keys.profile, staleTime: Infinity,
    queryFn: () => unwrap(api.POST("/api/v1/customers/info/{customer_id}", { params: { path: { customer_id: me() } } })),
  });
}
