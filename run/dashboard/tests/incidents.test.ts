import { expect, test } from "vitest";
import { byDay, byRoom, groupTitle, joined, lasting, nameOf, spansOf, stretchOf, urgency, wrong, type Incident } from "../src/logic/incidents";

function incident(more: Partial<Incident>): Incident {
  const id = more.id ?? "1";
  return {
    id, group_id: id, kind: "threshold", reason: "Temperature above 27.0 °C for 4 min, peak 31.2 °C", severity: "warning", state: "lasting", resolution: null,
    sensor_id: "a", sensor_name: "Rack 7", room_id: 1, room_name: "Hall A", gateway_id: null, rule_id: 3, quantity: "temperature", direction: "above", limit: 27,
    start_time: "2026-03-01T12:00:00Z", end_time: null, last_time: "2026-03-01T12:04:00Z", peak: 31.2, peak_time: "2026-03-01T12:02:00Z", value_now: 30,
    reopened: 0, late: false, alert_count: 0, silenced: false, acknowledged: false, acknowledged_at: null, acknowledged_by: null, comment: null, members: [],
    cause: null, band_low: null, band_high: null, probability: null, verdict: null, earliest: null, latest: null, ...more,
  };
}
const over: Partial<Incident> = { state: "resolved", end_time: "2026-03-01T12:10:00Z" };

test("worst first: lasting and critical, lasting, over but not seen, then what somebody has or expects", () => {
  const order = [
    incident({ severity: "critical" }), incident({}), incident(over), incident({ acknowledged: true, severity: "critical" }),
    incident({ silenced: true }), incident({ ...over, acknowledged: true }),
  ].map(urgency);
  expect(order).toEqual(order.toSorted((a, b) => b - a));
  expect(new Set(order).size).toBe(order.length);
});

test("incidents are listed by room, the worst room first, groups as one", () => {
  const sections = byRoom([
    incident({ id: "1", room_id: 2, room_name: "Hall B", group_id: "1" }),
    incident({ id: "2", room_id: 2, room_name: "Hall B", group_id: "1", severity: "critical", sensor_id: "b", sensor_name: "Rack 8" }),
    incident({ id: "3", room_id: 1 }), incident({ id: "4", room_id: null, room_name: null, sensor_name: null, sensor_id: "found" }),
  ]);
  expect(sections.map(({ title }) => title)).toEqual(["Hall B", "Hall A", "In no room yet"]);
  expect(sections[0]?.entries.map(({ members }) => members.map(({ id }) => id))).toEqual([["2", "1"]]);
});

test("a group is over when all of it is: what lasts stands for it, whoever has it, the worst first", () => {
  const ids = (...members: Incident[]) => byRoom(members.map((one) => ({ ...one, group_id: "g" }))).flatMap(({ entries }) => entries.flatMap((entry) => entry.members.map(({ id }) => id)));
  const ended = incident({ ...over, id: "over", severity: "critical" });
  expect(ids(ended, incident({ id: "seen", acknowledged: true }))).toEqual(["seen", "over"]);
  expect(ids(ended, incident({ id: "expected", silenced: true }))).toEqual(["expected", "over"]);
  expect(ids(incident({ id: "warm", start_time: "2026-03-01T12:05:00Z" }), incident({ id: "hot", value_now: 33 }))).toEqual(["hot", "warm"]);
  const cold = { direction: "below", limit: 18 } as const;
  expect(ids(incident({ ...cold, id: "cool", value_now: 17 }), incident({ ...cold, id: "cold", value_now: 12 }))).toEqual(["cold", "cool"]);
  expect(ids(incident({ ...over, id: "low", peak: 30, value_now: 35 }), incident({ ...over, id: "high", peak: 34 }))).toEqual(["high", "low"]);
  // A room is seen first when anybody must look there.
  const sections = byRoom([
    incident({ id: "1", acknowledged: true }), incident({ ...over, id: "2", group_id: "1" }), incident({ id: "3", room_id: 2, room_name: "Hall B", acknowledged: true, severity: "critical" }),
  ]);
  expect(sections.map(({ title }) => title)).toEqual(["Hall A", "Hall B"]);
});

test("a group lasts from its first begin to its last end", () => {
  const first = incident({ ...over, start_time: "2026-03-01T11:00:00Z", end_time: "2026-03-01T11:30:00Z" });
  const last = incident({ ...over, id: "2", start_time: "2026-03-01T11:10:00Z", end_time: "2026-03-01T12:10:00Z" });
  expect(stretchOf([last, first])).toEqual({ begin: first.start_time, end: last.end_time });
  expect(stretchOf([incident({}), first])).toEqual({ begin: first.start_time, end: null });
  expect(stretchOf([incident({ kind: "silence", last_time: "2026-03-01T11:55:00Z" })]).begin, "its newest reading").toBe("2026-03-01T11:55:00Z");
});

test("the silent sensors of a gateway are one group, whatever their rooms", () => {
  const silence: Partial<Incident> = { kind: "silence", quantity: null, direction: null, limit: null, peak: null, value_now: null, gateway_id: "gw", group_id: "s" };
  const [section] = byRoom([incident({ ...silence, id: "s" }), incident({ ...silence, id: "t", sensor_id: "b", room_id: 2, room_name: "Hall B" })]);
  expect(section?.title).toBe("Several rooms");
  expect(section?.entries.map(groupTitle)).toEqual(["Silent: 2 sensors"]);
});

test("a silent gateway is one incident of its sensors", () => {
  const member = (id: string, room: number) => ({ id, sensor_id: id, sensor_name: id, room_id: room, room_name: `Hall ${room}`, last_time: "2026-03-01T12:00:00Z", acknowledged: false });
  const gateway = incident({ kind: "silence", quantity: null, reason: "No readings for 7 min", members: [member("a", 1), member("b", 2)] });
  expect(nameOf(gateway)).toBe("2 sensors of one gateway");
  expect(byRoom([gateway]).map(({ title }) => title)).toEqual(["Several rooms"]);
});

test("a group says what its members have in common", () => {
  const entry = (...members: [Incident, ...Incident[]]) => groupTitle({ id: "1", members });
  expect(entry(incident({}), incident({ sensor_id: "b" }))).toBe("Temperature above 27.0 °C: 2 sensors");
  expect(entry(incident({}), incident({ quantity: "humidity", limit: 70 }))).toBe("Beyond their limits: Rack 7");
  expect(wrong(incident({ quantity: "temperature_rate", direction: "above", limit: 20 }))).toBe("Temperature change above 20.0 °C/h");
});

test("the history is of days, and folds nothing", () => {
  const days = byDay([incident({ id: "1", group_id: "g" }), incident({ id: "2", group_id: "g" }), incident({ id: "3", start_time: "2026-02-27T12:00:00Z" })]);
  expect(days.map(({ entries }) => entries.length)).toEqual([2, 1]);
});

test("what stands on two pages comes once", () => {
  expect(joined([[incident({ id: "2" }), incident({ id: "1" })], [incident({ id: "1" }), incident({ id: "0" })]]).map(({ id }) => id)).toEqual(["2", "1", "0"]);
});

test("it lasts until now, or lasted until its end, in whole minutes", () => {
  const now = Date.parse("2026-03-01T12:07:40Z");
  expect(lasting(stretchOf([incident({})]), now)).toBe("7 min");
  expect(lasting(stretchOf([incident({ start_time: "2026-03-01T12:07:30Z" })]), now)).toBe("10 s");
  expect(lasting(stretchOf([incident(over)]), now)).toBe("10 min");
});

test("a chart draws the incidents of its own quantity", () => {
  const noon = Date.UTC(2026, 2, 1, 12) / 1000;
  const spans = spansOf([incident({}), incident({ quantity: "dew_point" }), incident({ kind: "silence", quantity: null })], "temperature");
  expect(spans).toEqual([{ start: noon, end: noon + 240 }]);
});
