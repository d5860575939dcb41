import { expect, test } from "vitest";
import { clearing, condition, summarize, type RuleFields } from "../src/logic/rules";

const rule: RuleFields = { quantity: "temperature", direction: "above", limit: 27, for_s: 120, clear_margin: 0.5, clear_for_s: 120, severity: "warning", enabled: true };

test("rules are told in words", () => {
  expect(condition(rule)).toBe("Temperature above 27.0 °C for 2 min");
  expect(clearing(rule)).toBe("0.5 °C back for 2 min");
  const threshold: RuleFields = { ...rule, quantity: "humidity", limit: 50, for_s: 0, clear_margin: 0, clear_for_s: 0 };
  expect(condition(threshold)).toBe("Humidity above 50.0 %");
  expect(clearing(threshold)).toBe("back within");
});

test("a preview is summed up by day and by sensor, with the days on which nothing was", () => {
  const now = Date.parse("2026-03-03T12:00:00Z");
  const summary = summarize([
    { sensor_id: "a", incidents: 1, days: [{ date: "2026-03-01", incidents: 1 }] },
    { sensor_id: "b", incidents: 3, days: [{ date: "2026-03-01", incidents: 1 }, { date: "2026-03-03", incidents: 2 }] },
  ], 2, now);
  expect(summary.sentence).toBe("4 incidents in the last 2 days, at 2 sensors: 2.0 a day.");
  expect(summary.days).toEqual([{ date: "2026-03-01", incidents: 2 }, { date: "2026-03-02", incidents: 0 }, { date: "2026-03-03", incidents: 2 }]);
  expect(summary.sensors.map(({ sensor_id }) => sensor_id)).toEqual(["b", "a"]);
  expect(summarize([], 7, now).sentence).toBe("No incident in the last 7 days.");
});
