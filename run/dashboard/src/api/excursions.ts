// The queries of excursions, and the verdict on anomalies.
import { useInfiniteQuery, useMutation, useQuery } from "@tanstack/preact-query";
import type { Excursion } from "../logic/excursions";
import { allOf, api, pageOf, unwrap } from "./client";
import { keys, listLimit, pageLength, pollSlowly, refresh } from "./queries";

/** Newest first, page by page: those of an incident, or of a sensor. Followed: of what lasts. */
export function useExcursions(of: { incident_id: number } | { sensor_id: string }, followed: boolean) {
  return useInfiniteQuery({
    queryKey: [...keys.excursions, of], initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam: after, signal }) =>
      pageOf(api.GET("/api/v1/excursions", { signal, params: { query: { ...of, after, limit: pageLength } } })),
    getNextPageParam: ({ next }) => next, refetchInterval: followed ? pollSlowly : false,
  });
}

/** All those of a sensor in a range of milliseconds, newest first. */
export function useExcursionsOf(id: string, [start, end]: readonly [start: number, end: number]) {
  const range = { start_time: new Date(start).toISOString(), end_time: new Date(end).toISOString() };
  return useQuery<Excursion[]>({
    queryKey: [...keys.excursions, "of", id, start, end],
    placeholderData: (before, query) => (query?.queryKey[keys.excursions.length + 1] === id ? before : undefined),
    queryFn: ({ signal }) =>
      allOf((after) =>
        api.GET("/api/v1/excursions", {
          signal, params: { query: { ...range, sensor_id: id, after, limit: listLimit } },
        })),
  });
}

/** What somebody says of anomalies, in one word. One that takes no verdict does not keep the others from theirs. */
export function useVerdict(ids: number[]) {
  return useMutation({
    mutationFn: async (verdict: NonNullable<Excursion["verdict"]>) => {
      const refused: unknown[] = [];
      for (const excursion_id of ids) {
        await unwrap(api.PUT("/api/v1/excursions/{excursion_id}/verdict", {
          params: { path: { excursion_id } }, body: { verdict },
        })).catch((error: unknown) => refused.push(error));
      }
      if (refused.length > 0) throw refused[0];
    },
    onSettled: () => refresh(keys.live, keys.predictions),
  });
}
