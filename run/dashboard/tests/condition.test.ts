import { expect, test } from "vitest";
import { conditionOf, freshness, needsAttention, severity } from "../src/logic/condition";

const now = Date.parse("2026-03-01T12:00:00Z");
const ago = (seconds: number) => new Date(now - seconds * 1000).toISOString();
const limits = { max_temperature: 30, max_humidity: 50 };
const reading = (temperature: number, humidity: number, seconds = 10) => ({ temperature, humidity, timestamp: ago(seconds) });

test.each([
  [0, "online"], [59, "online"], [60, "late"], [300, "late"], [301, "offline"],
])("a reading %s s old is %s", (seconds, expected) => expect(freshness(ago(seconds), now)).toBe(expected));

test("a sensor without readings waits", () => expect(freshness(undefined, now)).toBe("waiting"));

test("a value at the limit is not over it", () => {
  expect(conditionOf(reading(30, 50), limits, 0, now)).toMatchObject({ tooHot: false, tooHumid: false });
  expect(conditionOf(reading(30.1, 50.1), limits, 0, now)).toMatchObject({ tooHot: true, tooHumid: true });
});

test("an old value over the limit says nothing about now", () => {
  expect(conditionOf(reading(90, 10, 600), limits, 0, now)).toMatchObject({ tooHot: false, freshness: "offline" });
});

test("worst first: over a limit, offline, alerts, late, waiting, fine", () => {
  const order = [
    conditionOf(reading(31, 40), limits, 0, now), conditionOf(reading(20, 40, 400), limits, 3, now),
    conditionOf(reading(20, 40), limits, 1, now), conditionOf(reading(20, 40, 90), limits, 0, now),
    conditionOf(undefined, limits, 0, now), conditionOf(reading(20, 40), limits, 0, now),
  ].map(severity);
  expect(order).toEqual([...order].sort((a, b) => b - a));
  expect(new Set(order).size).toBe(order.length);
});

test("a late sensor alone calls nobody", () => {
  expect(needsAttention(conditionOf(reading(20, 40, 90), limits, 0, now))).toBe(false);
});
