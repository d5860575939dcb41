import type { Incident } from "../src/logic/incidents";

/** One that lasts in Hall A, for the tests. */
export const incident = (more: Partial<Incident>): Incident => ({
  id: 1, room_id: 1, room_name: "Hall A", sensor_id: null, gateway_id: null, gateway_name: null, cause: "too_hot",
  severity: "critical", phase: "actual", state: "open",
  breaking: true, resolution: null, silenced: false, late: false, drill: false, seen: false,
  start_time: "2026-03-01T12:00:00Z",
  end_time: null, taken_by: null, taken_at: null, had_by: null, snoozed_until: null, comment: null,
  excursions: 12,
  worst: {
    excursion_id: 7, rule_id: 3, kind: "threshold", sensor_id: "a", sensor_name: "Rack 7", quantity: "temperature",
    direction: "above", limit: 27, peak: 34.2,
    last_time: "2026-03-01T12:11:30Z", reason: "Temperature above 27.0 °C for 12 min, peak 34.2 °C",
  },
  now: {
    value: 33.8, value_at: "2026-03-01T12:11:30Z", silent: false, within: false, rate: 0.6, next_limit: null,
    earliest: null, latest: null, sensors: 10, heard: 12, standing: 0,
  },
  ...more,
});
