// Every reading above a threshold raises an alert. Users think in episodes, into which
// the API folds alerts.
import type { components } from "../api/schema";

export type Episode = components["schemas"]["EpisodeBody"];

/** The number of unacknowledged alerts by sensor. */
export function openBySensor(episodes: readonly Episode[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { sensor_id, unacknowledged_count } of episodes) {
    counts.set(sensor_id, (counts.get(sensor_id) ?? 0) + unacknowledged_count);
  }
  return counts;
}

/** The number of alerts in the episodes. */
export function alertsIn(episodes: readonly Episode[]): number {
  return episodes.reduce((sum, episode) => sum + episode.alert_count, 0);
}

/** When a quantity exceeded its threshold, for a chart: seconds since the epoch. */
export interface Span {
  start: number;
  end: number;
  alerts: number;
}

export function intervalsOver(episodes: readonly Episode[], type: Episode["alert_type"]): Span[] {
  return episodes
    .filter((episode) => episode.alert_type === type)
    .map((episode) => ({
      start: Date.parse(episode.start_time) / 1000, end: Date.parse(episode.end_time) / 1000, alerts: episode.alert_count,
    }));
}
