// Answers of the overview put together by the tests, so that two thousand sensors, a
// late service and an outage are there at once.
import type { Page } from "@playwright/test";
import type { components } from "../src/api/schema";
import { incident } from "../tests/incident";

type Overview = components["schemas"]["Overview"];
type Incident = Overview["incidents"][number];
type Sensor = Overview["sensors"][number];

export const asked = /\/api\/v1\/overview$/;

/** An answer of rooms with so many sensors each, of which some are changed. Its sentence is of the first incident. */
export function answer(rooms: number, each: number, change: Record<string, Partial<Sensor>> = {},
  more: Partial<Overview> = {}): Overview {
  const now = new Date().toISOString();
  const sensors = Array.from({ length: rooms * each }, (_, i): Sensor => ({
    id: `s${i}`, name: `Rack ${(i % each) + 1}`, room_id: Math.floor(i / each) + 1, position: null, state: "ok",
    reports: !["silent", "late", "unreported"].includes(change[`s${i}`]?.state ?? "ok"),
    temperature: 20 + ((i * 7) % 60) / 10, humidity: 45, timestamp: now,
    gateway_id: null, judged_by: "window", learning_since: null, interval_s: 30, limits: 0,
    sparkline: `220${",1,-1,2,-2".repeat(11)}`, ...change[`s${i}`],
  }));
  const states = ["critical", "silent", "warning", "late", "unreported", "ok"] as const;
  const counts = Object.fromEntries(
    states.map((state) => [state, sensors.filter((sensor) => sensor.state === state).length]),
  ) as Record<Sensor["state"], number>;
  const stateOf = (room: number) =>
    states.find((state) => sensors.some((sensor) => sensor.room_id === room && sensor.state === state)) ?? "ok";
  const incidents = more.incidents ?? [];
  const [first] = incidents;
  const open = incidents.filter(({ state, silenced, late }) => state === "open" && !silenced && !late).length;
  const taken = incidents.filter(({ state }) => state === "taken").length;
  return {
    time: now, probe: { late: false, lateness_s: 0, published: now }, watched: true, watch_problems: [],
    sentence: {
      says: first ? "incident" : "nothing_wrong", tone: first?.severity ?? "quiet", incident_id: first?.id ?? null,
      cause: first?.cause ?? null, room: first?.room_name ?? null,
      sensor_id: first?.worst.sensor_id ?? null, sensor: first?.worst.sensor_name ?? null,
      quantity: first?.worst.quantity ?? null, value: first?.now?.value ?? null, value_at: first?.now?.value_at ?? null,
      limit: first?.worst.limit ?? null, rate: first?.now?.rate ?? null, since: first?.start_time ?? null,
      taken_by: first?.taken_by ?? null,
      others: Math.max(0, incidents.length - 1), outside: 0, drills: 0,
    },
    rooms: Array.from({ length: rooms },
      (_, i) => ({ id: i + 1, name: `Hall ${i + 1}`, state: stateOf(i + 1), max_temperature: 25.9, change_15m: 0.4 })),
    limits: [[{ quantity: "temperature", direction: "above", limit: 27, severity: "warning" },
      { quantity: "temperature", direction: "above", limit: 32, severity: "critical" }]],
    sparkline_start: new Date(Date.now() - 86_400_000).toISOString(), sensors, incidents,
    incident_counts: { lasting: incidents.length, open, taken, silenced: 0, unseen: 0, to_be_seen: open },
    counts: { sensors: sensors.length, reporting: sensors.filter(({ reports }) => reports).length, ...counts }, ...more,
  };
}

/** A room that is too hot, by a sensor. */
export const hot = (sensor: string, more: Partial<Incident> = {}): Incident => {
  const base = incident({ room_id: 4, room_name: "Hall 4", start_time: new Date(Date.now() - 720_000).toISOString() });
  return {
    ...base,
    worst: {
      ...base.worst, sensor_id: sensor, limit: 32, reason: "Temperature above 32.0 °C for 12 min, peak 35.1 °C",
    },
    ...more,
  };
};

/** Answers so from now on. What the test showed before stays below, so that no question between them reaches the
 * service, which knows nothing of it. */
export async function show(page: Page, body: object): Promise<void> {
  await page.route(asked, (route) => route.fulfill({ json: body }));
}
