import { expect, test } from "vitest";
import { setDisplay } from "../src/logic/format";
import { byDay, lasting, nowOf as nowAt, placeOf, rateOf, titleOf } from "../src/logic/incidents";
import { incident } from "./incident";

const nowOf = (one: ReturnType<typeof incident>) => nowAt(one, Date.UTC(2026, 2, 1, 12, 12));

test("an incident is told by its place and cause, as it is expected, is or was", () => {
  expect(titleOf(incident({}))).toBe("Hall A is too hot");
  expect(titleOf(incident({ phase: "expected" }))).toBe("Hall A will be too hot");
  expect(titleOf(incident({ breaking: false }))).toBe("Hall A was too hot");
  expect(titleOf(incident({ breaking: false, phase: "expected", cause: "too_dry" })))
    .toBe("Hall A was expected to be too dry");
  expect(titleOf(incident({ cause: "sensor", phase: "expected" }))).toBe("Hall A has a sensor at fault");
  expect(titleOf(incident({ cause: "unusual", breaking: false }))).toBe("Hall A had unusual readings");
  const gateway = { room_id: null, room_name: null, gateway_id: "gw-1", gateway_name: "Cellar" };
  expect(titleOf(incident({ ...gateway, cause: "silent" }))).toBe("Gateway Cellar is silent");
  const now = { ...incident({}).now!, sensors: 2, heard: 1 };
  expect(titleOf(incident({ cause: "silent", now }))).toBe("Hall A: 2 of 3 sensors are silent");
  expect(titleOf(incident({ cause: "silent", now: { ...now, heard: 0 } }))).toBe("Hall A is silent");
  expect(placeOf(incident({ room_name: null, sensor_id: "n1" }))).toBe("Rack 7, not placed");
  expect(titleOf(incident({ drill: true }))).toBe("Drill: Hall A is too hot");
});

test("how it is now: value, limit, where it goes, and how many sensors", () => {
  expect(nowOf(incident({}))).toEqual(["33.8 °C at Rack 7", "limit 27.0 °C", "rising 0.6 °C/min", "10 of 12 sensors"]);
  const now = { value: null, value_at: null, silent: false, within: false, rate: -0.01, next_limit: 35,
    earliest: "2026-03-01T12:09:00Z", latest: "2026-03-01T12:14:00Z", sensors: 1, heard: 1, standing: 3 };
  setDisplay({ unit: "°C", zone: "UTC" });
  expect(nowOf(incident({ now }))).toEqual(["limit 27.0 °C", "steady",
    expect.stringMatching(/^next limit 35\.0 °C expected 12:09.* to 12:14/), "1 of 1 sensor", "standing: 3"]);
  expect(nowOf(incident({ now: { ...now, next_limit: 27 } }))[2]).toMatch(/^passes 27\.0 °C 12:09.* to 12:14/);
  expect(nowOf(incident({ now, phase: "expected" }))).not.toContain("steady");
  expect(nowOf(incident({ now: { ...incident({}).now!, value: 26.8, within: true } })).slice(0, 2))
    .toEqual(["26.8 °C at Rack 7", "back within the limit 27.0 °C"]);
  expect(nowOf(incident({ breaking: false }))[0]).toBe("cleared");
  expect(nowOf(incident({ breaking: false, resolution: "rule_changed" })).slice(0, 3))
    .toEqual(["not cleared: its rule was changed or switched off", "33.8 °C at Rack 7", "rising 0.6 °C/min"]);
  expect(nowOf(incident({ now: null }))).toEqual([]);
  const damp = incident({ worst: { ...incident({}).worst, quantity: "dew_point", limit: 14 } });
  expect(nowOf(damp).slice(0, 2)).toEqual(["dew point 33.8 °C at Rack 7", "limit 14.0 °C"]);
  expect(nowOf({ ...damp, now: { ...now, rate: null } })[0]).toBe("limit dew point 14.0 °C");
  const dead = { ...incident({}).now!, silent: true, rate: null, sensors: 0, heard: 0 };
  expect(nowOf(incident({ now: dead })))
    .toEqual(["last 33.8 °C at Rack 7", expect.stringMatching(/^no reading since 12:11/), "limit 27.0 °C"]);
  expect(nowOf(incident({ now: { ...dead, value_at: "2026-02-27T12:11:30Z", heard: 2 } })).slice(1))
    .toEqual([expect.stringMatching(/Feb 27.*12:11/), "limit 27.0 °C", "0 of 2 sensors"]);
});

test("a rate is in the unit that is shown", () => {
  setDisplay({ unit: "°F", zone: "" });
  expect(rateOf("temperature", -0.5)).toBe("falling 0.9 °F/min");
  setDisplay({ unit: "°C", zone: "" });
  expect(rateOf("humidity", 2)).toBe("rising 2.0 %/min");
  expect(rateOf("temperature", null)).toBeNull();
  expect(rateOf(null, 2)).toBeNull();
});

test("it lasts in whole minutes once it is one", () => {
  const now = Date.parse("2026-03-01T12:05:59Z");
  expect(lasting(incident({}), now)).toBe("5 min");
  expect(lasting(incident({ start_time: "2026-03-01T12:05:29Z" }), now)).toBe("30 s");
  expect(lasting(incident({ end_time: "2026-03-01T12:02:30Z" }), now)).toBe("2 min");
});

test("the history is by day, in the service's order", () => {
  const days = byDay([incident({ id: 3, start_time: "2026-03-03T12:00:00Z" }),
    incident({ id: 1, start_time: "2026-03-01T13:00:00Z" }), incident({ id: 2, start_time: "2026-03-01T12:00:00Z" })]);
  expect(days.map(({ incidents }) => incidents.map(({ id }) => id))).toEqual([[3], [1, 2]]);
});
