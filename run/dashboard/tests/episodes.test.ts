import { expect, test } from "vitest";
import { episodesOf, valuesOf, type Alert } from "../src/logic/episodes";

let id = 0;
function alert(minute: number, more: Partial<Alert> = {}): Alert {
  return {
    id: ++id, sensor_id: "a", alert_type: "temperature", acknowledged: false,
    message: `High temperature detected: ${50 + minute / 10}°C (limit 50.0°C)`,
    timestamp: new Date(Date.UTC(2026, 2, 1, 12, minute)).toISOString(), ...more,
  };
}

test("consecutive alerts fold into one episode with peak, limit and duration", () => {
  const [episode, ...others] = episodesOf([alert(4), alert(2), alert(0)]);
  expect(others).toEqual([]);
  expect(episode).toMatchObject({ peak: 50.4, limit: 50, sensorID: "a" });
  expect(episode && episode.end - episode.start).toBe(4 * 60_000);
  expect(episode?.open).toHaveLength(3);
});

test("five quiet minutes do not end an episode, more do", () => {
  expect(episodesOf([alert(0), alert(5)])).toHaveLength(1);
  expect(episodesOf([alert(0), alert(5, { timestamp: "2026-03-01T12:05:01Z" })])).toHaveLength(2);
});

test("sensors and types are apart, newest first", () => {
  const episodes = episodesOf([alert(0), alert(1, { sensor_id: "b" }), alert(2, { alert_type: "humidity" })]);
  expect(episodes.map((e) => `${e.sensorID} ${e.type}`)).toEqual(["a humidity", "b temperature", "a temperature"]);
});

test("acknowledged alerts stay in the episode and are not open", () => {
  const [episode] = episodesOf([alert(0, { acknowledged: true }), alert(1)]);
  expect(episode?.alerts).toHaveLength(2);
  expect(episode?.open).toHaveLength(1);
});

test("values are read from both texts, and a foreign text has none", () => {
  expect(valuesOf("High humidity detected: 61.0% (limit 50.0%)")).toEqual({ value: 61, limit: 50 });
  expect(valuesOf("High temperature detected: -3.5°C (limit -5.0°C)")).toEqual({ value: -3.5, limit: -5 });
  expect(valuesOf("Something else")).toEqual({ value: null, limit: null });
});
