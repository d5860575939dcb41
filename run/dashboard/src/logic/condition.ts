// The condition of a sensor, by its last reading and its alerts, and which of two
// sensors a user should look at first.

export type Freshness = "online" | "late" | "offline" | "waiting";

const minute = 60_000;

/** Online under 1 minute, offline over 5, late in between, waiting before the first reading. */
export function freshness(lastReading: string | undefined, now: number): Freshness {
  if (lastReading === undefined) return "waiting";
  const age = now - Date.parse(lastReading);
  if (age < minute) return "online";
  return age > 5 * minute ? "offline" : "late";
}

export interface Limits {
  max_temperature: number;
  max_humidity: number;
}

export interface Condition {
  freshness: Freshness;
  /** Whether the last reading is strictly above a threshold, as detection compares. */
  tooHot: boolean;
  tooHumid: boolean;
  /** Alerts not yet acknowledged. */
  alerts: number;
}

export function conditionOf(
  reading: { temperature: number; humidity: number; timestamp: string } | undefined,
  limits: Limits | undefined,
  alerts: number,
  now: number,
): Condition {
  const current = freshness(reading?.timestamp, now);
  // An old value says nothing about the room now.
  const known = reading !== undefined && limits !== undefined && current !== "offline";
  return {
    freshness: current,
    tooHot: known && reading.temperature > limits.max_temperature,
    tooHumid: known && reading.humidity > limits.max_humidity,
    alerts,
  };
}

/** Larger is worse: above a threshold now, then offline, then unacknowledged alerts, then late, then waiting. */
export function severity(c: Condition): number {
  if (c.tooHot || c.tooHumid) return 5;
  if (c.freshness === "offline") return 4;
  if (c.alerts > 0) return 3;
  if (c.freshness === "late") return 2;
  return c.freshness === "waiting" ? 1 : 0;
}

/** Whether a user should do something about it. */
export function needsAttention(c: Condition): boolean {
  return severity(c) >= 3;
}
