import { expect, test } from "vitest";
import { groups } from "../src/logic/incidents";
import { beyond, learningSince, roomsOf, rotation, sparkColumns, stepOf, verdict, type LiveSensor, type Overview } from "../src/logic/overview";

type Limit = NonNullable<Overview["limits"][number]>[number];
const limit = (value: number, more: Partial<Limit> = {}): Limit => ({ quantity: "temperature", direction: "above", severity: "critical", limit: value, ...more });
const sensor = (more: Partial<LiveSensor>): LiveSensor => ({
  id: "a", name: "Rack 7", room_id: 1, position: null, state: "ok", temperature: 22, humidity: 45, timestamp: "2026-03-01T12:00:00Z", gateway_id: null, judged_by: "window", interval_s: 30, limits: 0, sparkline: "", ...more,
});
const incident = (more: Partial<Overview["incidents"][number]>): Overview["incidents"][number] => ({
  id: "1", group_id: more.id ?? "1", kind: "threshold", severity: "warning", sensor_id: "a", sensor_name: "Rack 7", room_id: 1, gateway_id: null,
  start_time: "2026-03-01T11:48:00Z", acknowledged: false, silenced: false, late: false, reason: "Temperature above 32.0 °C for 12 min, peak 33.1 °C", ...more,
});
function overview(sensors: LiveSensor[], incidents: Overview["incidents"] = [], late = 0, over = 0): Overview {
  const states = (state: string) => sensors.filter((one) => one.state === state).length;
  return {
    time: "2026-03-01T12:00:10Z", probe: { late: late > 0, lateness_s: late, published: null }, rooms: [{ id: 1, name: "Hall C" }, { id: 2, name: "Hall A" }],
    limits: [[limit(50)]], sparkline_start: "2026-02-28T12:30:00Z", sensors, incidents,
    to_be_seen: groups(incidents.filter(({ acknowledged, silenced }) => !acknowledged && !silenced)) + over,
    counts: { sensors: sensors.length, ok: states("ok"), warning: states("warning"), critical: states("critical"), silent: states("silent"), late: states("late"), unreported: states("unreported") },
  };
}
const says = (sensors: LiveSensor[], incidents?: Overview["incidents"], late?: number, over?: number) => verdict(overview(sensors, incidents, late, over));

test("all is well only within the recommended range", () => {
  expect(says([sensor({}), sensor({ id: "b" })])).toEqual({ tone: "quiet", text: "All within the recommended range, 2 of 2 reporting." });
  expect(says([sensor({}), sensor({ id: "b", name: "Rack 8", temperature: 49.5 })])).toEqual({
    tone: "note", sensorID: "b",
    text: "No limit is broken, but 1 sensor is outside the recommended range: Hall C, Rack 8 has 49.5 °C, 45.0 %. 2 of 2 reporting.",
  });
});

test("one incident is told in full, of several the worst", () => {
  expect(says([sensor({})], [incident({})])).toEqual({ tone: "warning", sensorID: "a", text: "Hall C, Rack 7: Temperature above 32.0 °C for 12 min, peak 33.1 °C" });
  const two = says([sensor({})], [incident({}), incident({ id: "2", severity: "critical", sensor_id: "b", sensor_name: "Rack 9", room_id: 2 })]);
  expect(two).toMatchObject({ tone: "critical", sensorID: "b" });
  expect(two.text).toMatch(/^2 incidents, worst: Hall A, Rack 9\. /);
  const group = says([sensor({}), sensor({ id: "b", name: "Rack 8", temperature: 40 })], [incident({}), incident({ id: "2", group_id: "1", sensor_id: "b", sensor_name: "Rack 8" })]);
  expect(group.text).toMatch(/^2 sensors, worst: Hall C, Rack 8\. /);
});

test("what somebody has is told quietly, and what is silenced not at all", () => {
  expect(says([sensor({})], [incident({ acknowledged: true, severity: "critical" })])).toMatchObject({ tone: "note" });
  expect(says([sensor({})], [incident({ silenced: true })])).toEqual({ tone: "quiet", text: "All within the recommended range, 1 of 1 reporting. 1 incident in maintenance." });
  expect(says([sensor({ temperature: 33 })], [incident({ silenced: true })]).text, "a limit is broken")
    .toBe("1 sensor is outside the recommended range: Hall C, Rack 7 has 33.0 °C, 45.0 %. 1 of 1 reporting. 1 incident in maintenance.");
});

test("incidents that are over hide neither what lasts nor what is outside the recommended range", () => {
  expect(says([sensor({})], [], 0, 1)).toEqual({ tone: "note", text: "All within the recommended range, 1 of 1 reporting. 1 incident to be seen is over." });
  expect(says([sensor({ temperature: 37 }), sensor({ id: "b" })], [], 0, 210)).toEqual({
    tone: "note", sensorID: "a",
    text: "No limit is broken, but 1 sensor is outside the recommended range: Hall C, Rack 7 has 37.0 °C, 45.0 %. 2 of 2 reporting. 210 incidents to be seen are over.",
  });
  const lasting = Array.from({ length: 31 }, (_, i) => incident({ id: `${i}`, severity: "critical" }));
  expect(says([sensor({ temperature: 41 })], lasting, 0, 210)).toMatchObject({ tone: "critical", text: expect.stringMatching(/^31 incidents, worst: Hall C, Rack 7\. /) });
});

test("of several that last the worst that nobody has is told, and how many maintenance expects", () => {
  const two = [incident({ id: "1", acknowledged: true, severity: "critical" }), incident({ id: "2", sensor_id: "b", sensor_name: "Rack 8" })];
  expect(says([sensor({})], two).text).toMatch(/^2 incidents, worst that nobody has: Hall C, Rack 8\. /);
  expect(says([sensor({})], two.map((one) => ({ ...one, acknowledged: true }))).text).toMatch(/^2 incidents, all acknowledged, worst: Hall C, Rack 7\. /);
  expect(says([sensor({})], [incident({}), incident({ id: "2", silenced: true }), incident({ id: "3", group_id: "2", silenced: true })]).text)
    .toBe("Hall C, Rack 7: Temperature above 32.0 °C for 12 min, peak 33.1 °C. 1 more in maintenance");
});

test("while the service is late it says so, and blames no sensor", () => {
  expect(says([sensor({ state: "late" })], [], 250)).toEqual({ tone: "note", text: "The service is 4 min late. Readings are on their way; no sensor is to blame." });
  expect(says([sensor({ state: "late" })], [incident({})], 250).tone).toBe("warning");
});

test("sensors that do not report are not counted as well", () => {
  expect(says([sensor({}), sensor({ id: "b", state: "unreported", temperature: null })]).text).toBe("All within the recommended range, 1 of 2 reporting. 1 sensor waits for its first reading.");
  expect(says([sensor({ state: "unreported", temperature: null })]).text).toBe("No sensor reports. 1 sensor waits for its first reading.");
});

test("rooms keep the service's order, their temperatures are those of sensors that report", () => {
  const rooms = roomsOf(overview([sensor({ room_id: 1, state: "silent", temperature: 60 }), sensor({ id: "b" }), sensor({ id: "c", temperature: 24 })]));
  expect(rooms.map(({ name, state }) => [name, state])).toEqual([["Hall C", "silent"], ["Hall A", "ok"]]);
  expect(rooms[0]?.range).toEqual([22, 24]);
});

test.each([
  [22.5, 0], [26.5, 1], [18.3, -1], [27.1, 2], [36, 2], [37.1, 3], [50, 3], [50.1, 4], [17, -2], [7, -3],
])("with the default threshold alone %s °C is step %s", (temperature, step) => expect(stepOf(temperature, [limit(50)])).toBe(step));

test.each([[27, 1], [27.1, 2], [29.6, 3], [32, 3], [32.1, 4], [14.9, -4], [17.9, -2]])("with warnings and class A1 %s °C is step %s", (temperature, step) => {
  const limits = [limit(27, { severity: "warning" }), limit(32), limit(18, { severity: "warning", direction: "below" }), limit(15, { direction: "below" })];
  expect(stepOf(temperature, limits)).toBe(step);
});

test("a value at its limit is not beyond it", () => {
  expect(beyond([limit(30)], "temperature", 30)).toBe(false);
  expect(beyond([limit(30)], "temperature", 30.1)).toBe(true);
  expect(beyond([limit(18, { direction: "below" })], "temperature", 17.9)).toBe(true);
  expect(beyond([limit(30)], "humidity", 60)).toBe(false);
});

test("learning began with the first half hour that has a reading", () => {
  const since = (sparkline: string) => learningSince(sensor({ sparkline }), overview([]));
  expect(since(",,220,1")).toBe(Date.parse("2026-02-28T13:30:00Z"));
  expect(since("220")).toBe(Date.parse("2026-02-28T12:30:00Z"));
  expect(since("")).toBeNull();
});

test("a sparkline is differences of tenths, with gaps", () => {
  expect(sparkColumns("243,0,1,,-2", "2026-02-28T12:30:00Z").mean).toEqual([24.3, 24.3, 24.4, null, 24.2]);
  expect(sparkColumns("", "2026-02-28T12:30:00Z").mean).toEqual([]);
});

test("a wall shows the rooms in trouble, or else all that have a sensor", () => {
  const names = (sensors: LiveSensor[]) => rotation(roomsOf(overview(sensors))).map(({ name }) => name);
  expect(names([sensor({}), sensor({ id: "b", room_id: 2 })])).toEqual(["Hall C", "Hall A"]);
  expect(names([sensor({}), sensor({ id: "b", room_id: 2, state: "warning" })])).toEqual(["Hall A"]);
  expect(names([sensor({})])).toEqual(["Hall C"]);
});
