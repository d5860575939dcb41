import { expect, test } from "vitest";
import {
  beyond, contactOf, inTrouble, roomsOf, sentenceOf, stepOf, type LiveSensor, type Overview,
} from "../src/logic/overview";
import { setDisplay } from "../src/logic/format";
import { limitOf } from "../src/logic/room";
import { sparkColumns } from "../src/logic/spark";
import { incident } from "./incident";

type Limit = NonNullable<Overview["limits"][number]>[number];
const limit = (value: number, more: Partial<Limit> = {}): Limit =>
  ({ quantity: "temperature", direction: "above", severity: "critical", limit: value, ...more });
const sensor = (more: Partial<LiveSensor>): LiveSensor => ({
  id: "a", name: "Rack 7", room_id: 1, position: null, state: "ok", reports: more.state !== "silent",
  temperature: 22, humidity: 45,
  timestamp: "2026-03-01T12:00:00Z",
  gateway_id: null, judged_by: "window", learning_since: null, interval_s: 30, limits: 0, sparkline: "", ...more,
});
const nothing: Overview["sentence"] = {
  says: "nothing_wrong", tone: "quiet", incident_id: null, cause: null, room: null, sensor_id: null, sensor: null,
  quantity: null, value: null, value_at: null, limit: null, rate: null, since: null,
  taken_by: null, others: 0, outside: 0, drills: 0,
};
function overview(sensors: LiveSensor[], more: Partial<Overview> = {}): Overview {
  const states = (state: string) => sensors.filter((one) => one.state === state).length;
  return {
    time: "2026-03-01T12:00:10Z", probe: { late: false, lateness_s: 0, published: null },
    watched: true, watch_problems: [], sentence: nothing,
    rooms: [
      { id: 1, name: "Hall C", state: "silent", max_temperature: 24, change_15m: 0.4 },
      { id: 2, name: "Hall A", state: "ok", max_temperature: null, change_15m: null },
    ],
    limits: [[limit(50)]], sparkline_start: "2026-02-28T12:30:00Z", sensors, incidents: [],
    incident_counts: { lasting: 0, open: 0, taken: 0, silenced: 0, unseen: 0, to_be_seen: 0 },
    counts: { sensors: sensors.length, reporting: sensors.filter(({ reports }) => reports).length,
      ok: states("ok"), warning: states("warning"), critical: states("critical"), silent: states("silent"),
      late: states("late"), unreported: states("unreported") },
    ...more,
  };
}
const says = (sentence: Partial<Overview["sentence"]>, more: Partial<Overview> = {}) =>
  sentenceOf(overview([sensor({})], { sentence: { ...nothing, ...sentence }, ...more })).join("");

test("the sentence words what the service says, and nothing else", () => {
  setDisplay({ unit: "°C", zone: "UTC" });
  expect(says({})).toBe("Nothing is wrong. 1 of 1 sensor reporting.");
  const hot = {
    says: "incident", tone: "critical", incident_id: 1, cause: "too_hot", room: "Hall A", sensor_id: "a",
    sensor: "Rack 7", quantity: "temperature", value: 33.8, limit: 27, rate: 0.6,
    since: "2026-03-01T12:00:00Z",
  } as const;
  const told = String.raw`33\.8 °C at Rack 7, limit 27\.0 °C, rising 0\.6 °C/min, 10 of 12 sensors, since \d+:00.*\.`;
  expect(says(hot, { incidents: [incident({})] }))
    .toMatch(new RegExp(String.raw`^Hall A is too hot: ${told} Nobody has it\.$`));
  expect(says({ ...hot, taken_by: "anna", others: 2 }, {
    incidents: [incident({ state: "taken", phase: "expected", breaking: false })],
  })).toMatch(/^Hall A was expected to be too hot: cleared, .*\. anna has it\. 2 other incidents\.$/);
  expect(says({ ...hot, value: null, limit: null, rate: null, quantity: null }, {
    incidents: [incident({ cause: "silent", now: null })],
  })).toMatch(/^Hall A is silent: since /);
  expect(says({ ...hot, since: "2026-02-24T12:00:00Z" }, { incidents: [incident({})] }), "of another day")
    .toMatch(/since .*Feb.* \d+:00/);
  expect(says({ says: "service_late" }, { probe: { late: true, lateness_s: 250, published: null } }))
    .toBe("The service is 4 min late. Readings are on their way; no sensor is to blame.");
  expect(says({ says: "no_sensor_reports" })).toBe("No sensor reports.");
  expect(says({ says: "maintenance" }, {
    incident_counts: { lasting: 1, open: 0, taken: 0, silenced: 1, unseen: 0, to_be_seen: 0 },
  })).toBe("1 incident in maintenance, and no other. 1 of 1 sensor reporting.");
  expect(says({
    says: "outside_recommended", room: "Hall C", sensor: "Rack 8", quantity: "humidity", value: 71, outside: 1,
  }))
    .toBe("No limit is broken, but 1 sensor is outside the recommended range: Hall C, Rack 8 has humidity "
      + "71.0 %. 1 of 1 sensor reporting.");
});

test("rooms keep the service's order, their temperatures are those of sensors that report", () => {
  const rooms = roomsOf(overview([sensor({ state: "silent", temperature: 60 }), sensor({ id: "b" }),
    sensor({ id: "c", temperature: 24 }), sensor({ id: "d", state: "critical", reports: false, temperature: 45 })]));
  expect(rooms.map(({ name, state }) => [name, state])).toEqual([["Hall C", "silent"], ["Hall A", "ok"]]);
  expect(rooms[0]?.range).toEqual([22, 24]);
});

test.each([
  [22.5, 0], [26.5, 1], [18.3, -1], [27.1, 2], [36, 2], [37.1, 3], [50, 3], [50.1, 4], [17, -2], [7, -3],
])("with the default threshold alone %s °C is step %s", (temperature, step) =>
  expect(stepOf(temperature, [limit(50)])).toBe(step));

test.each(
  [[27, 1], [27.1, 2], [29.6, 3], [32, 3], [32.1, 4], [14.9, -4], [17.9, -2]],
)("with warnings and class A1 %s °C is step %s", (temperature, step) => {
  const limits = [limit(27, { severity: "warning" }), limit(32), limit(18, { severity: "warning", direction: "below" }),
    limit(15, { direction: "below" })];
  expect(stepOf(temperature, limits)).toBe(step);
});

test("a value at its limit is not beyond it", () => {
  expect(beyond([limit(30)], "temperature", 30)).toBe(false);
  expect(beyond([limit(30)], "temperature", 30.1)).toBe(true);
  expect(beyond([limit(18, { direction: "below" })], "temperature", 17.9)).toBe(true);
  expect(beyond([limit(30)], "humidity", 60)).toBe(false);
});

test.each(
  [[0, "Online"], [59, "Online"], [60, "Late"], [300, "Late"], [301, "Offline"]] as const,
)("a reading %s s old is %s", (age, word) => {
  expect(contactOf("2026-03-01T12:00:00Z", Date.UTC(2026, 2, 1, 12, 0, age))).toBe(word);
});

test("a sparkline is differences of tenths, with gaps", () => {
  expect(sparkColumns("243,0,1,,-2", "2026-02-28T12:30:00Z").mean).toEqual([24.3, 24.3, 24.4, null, 24.2]);
  expect(sparkColumns("", "2026-02-28T12:30:00Z").mean).toEqual([]);
});

test("a room in trouble is one that is critical, silent or in warning", () => {
  expect((["critical", "silent", "warning", "late", "unreported", "ok"] as const)
    .filter((state) => inTrouble({ state }))).toEqual(["critical", "silent", "warning"]);
});

test("a room's limit is that of its incident, as long as that is in force", () => {
  const hot = incident({});
  const worst = { ...hot.worst, limit: 32 };
  const of = (...incidents: ReturnType<typeof incident>[]) => {
    const seen = overview([sensor({})], { limits: [[limit(27, { severity: "warning" }), limit(32)]], incidents });
    return limitOf(roomsOf(seen)[0]!, seen);
  };
  expect(of()).toBe(27);
  expect(of({ ...hot, worst: { ...worst, quantity: "humidity", limit: 80 } }, { ...hot, worst })).toBe(32);
  expect(of({ ...hot, worst, breaking: false, resolution: "cleared" })).toBe(32);
  expect(of({ ...hot, worst, breaking: false, resolution: "rule_changed" })).toBe(27);
  expect(of({ ...hot, room_id: 2, worst })).toBe(27);
});
