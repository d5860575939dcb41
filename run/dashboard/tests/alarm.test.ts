import { expect, test } from "vitest";
import { alarming, announcement, Told } from "../src/logic/alarm";
import type { OpenIncident } from "../src/logic/overview";

const incident = (id: string, more: Partial<OpenIncident> = {}): OpenIncident => ({
  id, group_id: id, kind: "threshold", severity: "warning", sensor_id: "a", sensor_name: "Rack 7", room_id: 1, gateway_id: null,
  start_time: "2026-03-01T11:48:00Z", acknowledged: false, silenced: false, late: false, reason: "Temperature above 32.0 °C", ...more,
});
const ids = (found: OpenIncident[]) => found.map(({ id }) => id);

test("what is late, acknowledged or in maintenance makes no sound", () => {
  const incidents = [
    incident("2", { late: true }), incident("3", { acknowledged: true }), incident("4", { silenced: true }), incident("5"),
  ];
  expect(ids(alarming({ incidents }))).toEqual(["5"]);
});

test("an incident is told once, when it comes, the worst first", () => {
  const told = new Told();
  expect(ids(told.next({ incidents: [incident("1")] })), "seen on the page that begins").toEqual([]);
  expect(ids(told.next({ incidents: [incident("1"), incident("2"), incident("3", { severity: "critical" })] }))).toEqual(["3", "2"]);
  expect(ids(told.next({ incidents: [incident("1"), incident("2"), incident("3")] }))).toEqual([]);
  expect(ids(told.next({ incidents: [] }))).toEqual([]);
  expect(ids(told.next({ incidents: [incident("2")] })), "it comes back").toEqual([]);
  told.next({ incidents: [incident("2", { acknowledged: true })] });
  expect(ids(told.next({ incidents: [incident("2")] })), "given back").toEqual(["2"]);
});

test("what still lasts when its maintenance ends is told then", () => {
  const told = new Told();
  told.next({ incidents: [incident("1", { silenced: true })] });
  expect(ids(told.next({ incidents: [incident("1")] }))).toEqual(["1"]);
});

test("a notification names the place and the reason", () => {
  const rooms = [{ id: 1, name: "Hall C" }];
  expect(announcement([incident("1")], rooms)).toEqual({ title: "Hall C, Rack 7", body: "Temperature above 32.0 °C" });
  expect(announcement([incident("1"), incident("2")], rooms).title).toBe("2 incidents, worst: Hall C, Rack 7");
});
