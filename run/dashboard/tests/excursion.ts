import type { Excursion } from "../src/logic/excursions";

/** One that lasts, as the service would answer it. */
export function excursion(more: Partial<Excursion>): Excursion {
  return {
    id: 1, incident_id: 1, kind: "threshold", reason: "Temperature above 27.0 °C for 4 min, peak 31.2 °C",
    severity: "warning", state: "lasting", resolution: null,
    sensor_id: "a", sensor_name: "Rack 7", room_id: 1, room_name: "Hall A", gateway_id: null, rule_id: 3,
    quantity: "temperature", direction: "above", limit: 27,
    start_time: "2026-03-01T12:00:00Z", end_time: null, last_time: "2026-03-01T12:04:00Z", peak: 31.2,
    peak_time: "2026-03-01T12:02:00Z", reopened: 0, late: false,
    cause: null, band_low: null, band_high: null, probability: null, verdict: null,
    earliest: null, latest: null, ...more,
  };
}
