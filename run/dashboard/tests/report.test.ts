import { expect, test } from "vitest";
import { monthBounds, months, percent, reportCSV, worstFirst, type ReportedSensor } from "../src/logic/report";
import { excursion } from "./excursion";
import { incident } from "./incident";

const sensor = (name: string, minutes: number): ReportedSensor => ({
  sensor_id: "n1", name, minutes_reported: 10 * minutes, minutes_outside_recommended: minutes,
  minutes_outside_allowable: 0,
  min_temperature: 20, max_temperature: null, calibration_due: null, calibration_overdue: false,
});

test("a month is one on the clocks of its zone, summer and winter", () => {
  const [start, end] = monthBounds("2026-03", "Europe/Berlin");
  expect(new Date(start).toISOString()).toBe("2026-02-28T23:00:00.000Z");
  expect(new Date(end).toISOString()).toBe("2026-03-31T22:00:00.000Z");
  expect(monthBounds("2026-12", "UTC")).toEqual([Date.UTC(2026, 11, 1), Date.UTC(2027, 0, 1)]);
  expect(months(Date.UTC(2026, 0, 31), 3, "UTC")).toEqual(["2026-01", "2025-12", "2025-11"]);
  const change = Date.UTC(2026, 2, 1, 1);
  expect(months(change, 1, "Asia/Tokyo").concat(months(change, 1, "America/New_York"))).toEqual(["2026-03", "2026-02"]);
  expect(months(Date.UTC(2026, 1, 28, 23, 30), 1, "Europe/Berlin"), "its first half hour").toEqual(["2026-03"]);
});

test("a month with two bad minutes is not 100 %", () => {
  expect([percent(44_638, 44_640), percent(44_640, 44_640), percent(999, 1000), percent(29, 1000), percent(0, 0)])
    .toEqual(["99.9 %", "100.0 %", "99.9 %", "2.9 %", "–"]);
});

test("the file has its four tables, and no name is a formula", () => {
  const at = "2026-03-01T12:05:00Z";
  const hot = incident({ taken_by: "anna", had_by: "anna", taken_at: at, comment: 'A "door"\nwas open' });
  const silent = incident({ room_name: null, gateway_name: "Basement", cause: "silent" });
  const silence = excursion({ kind: "silence", end_time: "2026-03-01T13:00:00Z", late: true });
  const time = { minutes: 60, minutes_reported: 50, minutes_outside_recommended: 3, minutes_outside_allowable: 0 };
  const lines = reportCSV([{ id: 1, name: "Hall", time, sensors: [sensor("=1+1", 2), sensor("Rack 1, top", 0.125)] }],
    [hot, silent, { ...silent, gateway_name: null, had_by: "berta" }], [silence]).split("\r\n");
  expect(lines.slice(1, 3)).toEqual(["Hall,60,50,3,0", ""]);
  expect(lines.slice(4, 7)).toEqual(["Hall,n1,'=1+1,20,2,0,20,", 'Hall,n1,"Rack 1, top",1.25,0.13,0,20,', ""]);
  expect(lines[8]).toBe('Hall A,too_hot,critical,2026-03-01T12:00:00Z,,a,Rack 7,"Temperature above 27.0 °C for 12 '
    + 'min, peak 34.2 °C",34.2,anna,2026-03-01T12:05:00Z,"A ""door""\nwas open"');
  expect(lines[9]).toMatch(/^Gateway Basement,silent,/);
  expect(lines[10]).toMatch(/^"Rack 7, not placed",silent,.*"berta, then nobody",,$/);
  expect(lines.slice(11)).toEqual(["", "room,sensor_id,sensor,start_time,end_time,delivered_late",
    "Hall A,a,Rack 7,2026-03-01T12:00:00Z,2026-03-01T13:00:00Z,true", ""]);
  const room = (name: string, outside: number) =>
    ({ id: 1, name, sensors: [], time: { ...time, minutes_outside_recommended: outside } });
  expect(worstFirst([room("a", 1), room("b", 9), { ...room("c", 0), time: undefined }]).map(({ name }) => name))
    .toEqual(["b", "a", "c"]);
});
