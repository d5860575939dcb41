// Answers of the overview put together by the tests, so that two thousand sensors, a
// late service and an outage are there at once.
import type { Page } from "@playwright/test";

export const asked = /\/api\/v1\/overview$/;

interface Change { state?: string; name?: string; temperature?: number | null; judged_by?: string }

/** An answer of rooms with so many sensors each, of which some are changed. */
export function answer(rooms: number, each: number, change: Record<string, Change> = {}, more: { incidents?: ReturnType<typeof hot>[]; [other: string]: unknown } = {}) {
  const waiting = (more.incidents ?? []).filter(({ acknowledged, silenced }) => !acknowledged && !silenced);
  const now = new Date().toISOString();
  const sensors = Array.from({ length: rooms * each }, (_, i) => ({
    id: `s${i}`, name: `Rack ${(i % each) + 1}`, room_id: Math.floor(i / each) + 1, position: null, state: "ok", temperature: 20 + ((i * 7) % 60) / 10, humidity: 45, timestamp: now,
    gateway_id: null, judged_by: "window", interval_s: 30, limits: 0, sparkline: `220${",1,-1,2,-2".repeat(11)}`, ...change[`s${i}`],
  }));
  const counts = Object.fromEntries(["ok", "warning", "critical", "silent", "late", "unreported"].map((state) => [state, sensors.filter((sensor) => sensor.state === state).length]));
  return {
    time: now, probe: { late: false, lateness_s: 0, published: now }, rooms: Array.from({ length: rooms }, (_, i) => ({ id: i + 1, name: `Hall ${i + 1}` })),
    limits: [[{ quantity: "temperature", direction: "above", limit: 27, severity: "warning" }, { quantity: "temperature", direction: "above", limit: 32, severity: "critical" }]],
    sparkline_start: new Date(Date.now() - 86_400_000).toISOString(), sensors, incidents: [] as object[], to_be_seen: new Set(waiting.map(({ group_id }) => group_id)).size, counts: { sensors: sensors.length, ...counts }, ...more,
  };
}

export const hot = (id: string, more: object = {}) => ({
  id: "1", group_id: "1", kind: "threshold", severity: "critical", sensor_id: id, sensor_name: "Rack 7", room_id: 4, gateway_id: null,
  start_time: new Date(Date.now() - 720_000).toISOString(), acknowledged: false, silenced: false, late: false, reason: "Temperature above 32.0 °C for 12 min, peak 35.1 °C", ...more,
});

export async function show(page: Page, body: object): Promise<void> {
  await page.unroute(asked);
  await page.route(asked, (route) => route.fulfill({ json: body }));
}
