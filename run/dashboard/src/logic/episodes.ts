// Alerts come one per exceeding reading; a person thinks in episodes.

export interface Alert {
  id: number;
  sensor_id: string;
  alert_type: string;
  message: string;
  timestamp: string;
  acknowledged: boolean;
}

export interface Episode {
  /** Of the earliest alert, so that it stays while the episode goes on. */
  key: string;
  sensorID: string;
  type: string;
  /** Milliseconds since the epoch. */
  start: number;
  end: number;
  /** Highest value that the alerts' texts name, in °C or percent; null if none does. */
  peak: number | null;
  limit: number | null;
  /** Newest first. */
  alerts: Alert[];
  /** Ids yet to acknowledge. */
  open: number[];
}

/** Alerts further apart than this are two episodes: a sensor silent for so long counts as offline. */
export const episodeGap = 5 * 60_000;

/** The value and the limit in a text such as "High temperature detected: 55.2°C (limit 50.0°C)". */
export function valuesOf(message: string): { value: number | null; limit: number | null } {
  const number = (match: RegExpExecArray | null) => (match?.[1] === undefined ? null : Number(match[1]));
  return {
    value: number(/:\s*(-?\d+(?:\.\d+)?)\s*(?:°C|%)/.exec(message)),
    limit: number(/limit\s+(-?\d+(?:\.\d+)?)\s*(?:°C|%)/.exec(message)),
  };
}

/** Folds alerts, in any order, into episodes, newest first. */
export function episodesOf(alerts: readonly Alert[]): Episode[] {
  const ordered = alerts
    .map((alert) => ({ alert, time: Date.parse(alert.timestamp) }))
    .sort((a, b) => a.time - b.time || a.alert.id - b.alert.id);
  const latest = new Map<string, Episode>();
  const episodes: Episode[] = [];
  for (const { alert, time } of ordered) {
    const series = `${alert.alert_type} ${alert.sensor_id}`;
    let episode = latest.get(series);
    if (!episode || time - episode.end > episodeGap) {
      episode = {
        key: String(alert.id), sensorID: alert.sensor_id, type: alert.alert_type,
        start: time, end: time, peak: null, limit: null, alerts: [], open: [],
      };
      latest.set(series, episode);
      episodes.push(episode);
    }
    const { value, limit } = valuesOf(alert.message);
    episode.end = time;
    if (value !== null) episode.peak = Math.max(episode.peak ?? value, value);
    if (limit !== null) episode.limit = limit;
    episode.alerts.unshift(alert);
    if (!alert.acknowledged) episode.open.push(alert.id);
  }
  return episodes.sort((a, b) => b.end - a.end || b.start - a.start);
}
