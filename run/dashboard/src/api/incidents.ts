// The query of past incidents, page by page.
import { useInfiniteQuery } from "@tanstack/preact-query";
import type { Incident } from "../logic/incidents";
import { api, pageOf } from "./client";
import { keys, pageLength, pollSlowly } from "./queries";

export interface IncidentFilter {
  state?: "unseen" | undefined;
  roomID?: number | undefined;
  cause?: Incident["cause"] | undefined;
  /** Words that all stand in an incident. */
  text?: string;
  /** Milliseconds since the epoch. */
  from?: number | undefined;
  to?: number | undefined;
}

const iso = (time: number | undefined) => (time === undefined ? undefined : new Date(time).toISOString());

/** Incidents, newest first, page by page. */
export function useIncidents({ state, roomID, cause, text, from, to }: IncidentFilter, enabled = true) {
  return useInfiniteQuery({
    queryKey: [...keys.incidents, state, roomID, cause, text, from, to], refetchInterval: pollSlowly,
    initialPageParam: undefined as string | undefined, enabled,
    queryFn: ({ pageParam: after, signal }) => pageOf(api.GET("/api/v1/incidents", {
      signal,
      params: {
        query: { state, room_id: roomID, cause, q: text || undefined, start_time: iso(from), end_time: iso(to),
          after, limit: pageLength },
      },
    })),
    // What was found before stays while somebody types.
    placeholderData: (before) => before,
    getNextPageParam: ({ next }) => next,
  });
}
