import { expect, test } from "vitest";
import { valueOf, wrong, type Excursion } from "../src/logic/excursions";
import type { LiveSensor } from "../src/logic/overview";
import { factsOf, fanOf, incidentOf, oneIn, partOf, spansOf } from "../src/logic/spans";
import { excursion } from "./excursion";
import { incident } from "./incident";

const silence: Partial<Excursion> = { kind: "silence", quantity: null, direction: null, limit: null, peak: null,
  peak_time: null, reason: "No readings for 7 min" };
const noon = Date.UTC(2026, 2, 1, 12) / 1000;

test("what is wrong is told by the limit, or in the words of what found it", () => {
  expect(wrong(excursion({ quantity: "temperature_rate", limit: 20 }))).toBe("Temperature change above 20.0 °C/h");
  expect(wrong(excursion({ kind: "anomaly", reason: "Humidity unlike the last hours" })))
    .toBe("Humidity unlike the last hours");
  expect(wrong(excursion(silence))).toBe("No readings for 7 min");
});

test("a value has the unit of its quantity, and a silence has none", () => {
  expect(valueOf(excursion({ quantity: "humidity" }), 61.5)).toBe("61.5 %");
  expect(valueOf(excursion(silence), null)).toBe("–");
  expect(oneIn(0.000412)).toBe(2400);
});

test("what else is known of it is told, and nothing that is not", () => {
  expect(factsOf(excursion({}))).toEqual([]);
  expect(factsOf(excursion({ kind: "anomaly", band_low: 22.5, band_high: 24, probability: 0.0004 })))
    .toEqual(["usual: 22.5 °C to 24.0 °C", "one hour in 2,500 when nothing is wrong"]);
  expect(factsOf(excursion({ kind: "anomaly", probability: 1e-30 })))
    .toContain("one hour in more than a million when nothing is wrong");
  expect(factsOf(excursion({ state: "over", late: true, reopened: 2, resolution: "sensor_moved" })))
    .toEqual(["reported late", "came back 2 times", "ended: the sensor was moved"]);
  expect(factsOf(excursion({ ...silence, state: "over", late: true, resolution: "cleared" })))
    .toEqual(["delivered late"]);
  expect(factsOf(excursion(silence))).toEqual([expect.stringMatching(/^newest reading /)]);
  expect(factsOf(excursion({ kind: "forecast", earliest: "2026-03-01T12:09:00Z", latest: "2026-03-01T12:14:00Z" })))
    .toEqual([expect.stringMatching(/^passes it \d\d:\d\d.* to \d\d:\d\d/)]);
});

test("a chart draws the excursions of its own quantity, and what was usual in an anomaly", () => {
  const anomaly = excursion({ kind: "anomaly", quantity: "temperature_rate", band_low: 22, band_high: 24 });
  const forecast = excursion({ kind: "forecast" });
  expect(spansOf(
    [excursion({}), anomaly, forecast, excursion({ quantity: "dew_point" }), excursion(silence)], "temperature",
  )).toEqual([{ start: noon, end: noon + 240 }, { start: noon, end: noon + 240, low: 22, high: 24 }]);
});

test("what is expected is drawn from its own sensor's curve, until that has passed the limit", () => {
  const forecast = excursion({ kind: "forecast", earliest: "2026-03-01T12:09:00Z", latest: "2026-03-01T12:14:00Z" });
  const curve = (value: number) => (id: string) => (id !== forecast.sensor_id ? undefined
    : { time: [noon], mean: [value], low: [value], high: [value] });
  expect(fanOf([excursion({}), forecast], "temperature", curve(26)))
    .toEqual({ time: noon, value: 26, limit: 27, earliest: noon + 540, latest: noon + 840 });
  expect(fanOf([forecast], "temperature", curve(29)), "it would fall to its limit").toBeUndefined();
  expect(fanOf([{ ...forecast, direction: "below" }], "temperature", curve(29))).toBeDefined();
  expect(fanOf([{ ...forecast, sensor_id: "other" }, forecast], "temperature", curve(26))).toBeDefined();
  expect(fanOf([{ ...forecast, sensor_id: "other" }], "temperature", curve(26))).toBeUndefined();
  expect(fanOf([{ ...forecast, state: "over" }], "temperature", curve(26))).toBeUndefined();
  expect(fanOf([forecast], "humidity", curve(26))).toBeUndefined();
});

test("the incident of a sensor is one that it has a part in, not another of its room", () => {
  const hot = incident({ id: 1 });
  const silent = incident({ id: 2, room_id: null, room_name: null, gateway_id: "gw", cause: "silent" });
  const own = [excursion({ ...silence, id: 8, incident_id: 2, sensor_id: "b" }),
    excursion({ id: 9, incident_id: 1, sensor_id: "b", state: "over" })];
  expect(incidentOf("b", own, [hot, silent])?.id).toBe(2);
  expect(incidentOf("b", [], [hot, silent])).toBeUndefined();
  expect(incidentOf("a", [], [hot, silent])?.id, "the worst of it").toBe(1);
});

test("excursions are asked for again when an incident of the gateway follows the sensor's silence", () => {
  const sensor = { state: "silent", room_id: 1 } as LiveSensor;
  const silent = incident({ room_id: null, room_name: null, gateway_id: "gw", cause: "silent" });
  expect(partOf(sensor, [silent])).not.toBe(partOf(sensor, []));
  expect(partOf(sensor, [incident({ room_id: 7 })])).toBe(partOf(sensor, []));
});
