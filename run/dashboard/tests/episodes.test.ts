import { expect, test } from "vitest";
import { alertsIn, openBySensor, intervalsOver, type Episode } from "../src/logic/episodes";

function episode(more: Partial<Episode>): Episode {
  return {
    sensor_id: "a", alert_type: "temperature", start_time: "2026-03-01T12:00:00Z", end_time: "2026-03-01T12:04:00Z",
    peak: 55.2, threshold: 50, alert_count: 9, unacknowledged_count: 4, ...more,
  };
}

test("open alerts are counted by sensor, over all its episodes", () => {
  const open = openBySensor([episode({}), episode({ alert_type: "humidity", unacknowledged_count: 1 }), episode({ sensor_id: "b" })]);
  expect([...open]).toEqual([["a", 5], ["b", 4]]);
});

test("alerts are counted over all episodes", () => {
  expect(alertsIn([episode({}), episode({ alert_count: 2 })])).toBe(11);
  expect(alertsIn([])).toBe(0);
});

test("a chart draws the episodes of its own quantity", () => {
  const noon = Date.UTC(2026, 2, 1, 12) / 1000;
  const spans = intervalsOver([episode({}), episode({ alert_type: "humidity" })], "temperature");
  expect(spans).toEqual([{ start: noon, end: noon + 240, alerts: 9 }]);
});
