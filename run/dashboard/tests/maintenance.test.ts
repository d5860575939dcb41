import { expect, onTestFinished, test, vi } from "vitest";
import {
  clocksChange, inputInstant, inputTime, inputValue, instantOf, occurrences, recurrence, type Window,
} from "../src/logic/maintenance";

const window = (more: Partial<Window>): Window => ({
  id: 1, start_time: "2026-03-02T07:00:00Z", duration_s: 7200, time_zone: "Europe/Zurich", weekdays: [], until: null,
  room_ids: [3], sensor_id: null,
  comment: null, created_by: "anna", active: false, next_start: null, ...more,
});
const at = (text: string) => Date.parse(text);
const begins = (windows: Window[], from: string, to: string) =>
  occurrences(windows, at(from), at(to)).map(({ start }) => new Date(start).toISOString());

test.each([
  ["2026-03-29T01:30:00Z", "Europe/Zurich", "2026-03-29T00:30:00.000Z"], // before the clocks go forward
  ["2026-03-29T03:30:00Z", "Europe/Zurich", "2026-03-29T01:30:00.000Z"], // after
  ["2026-07-01T08:00:00Z", "America/New_York", "2026-07-01T12:00:00.000Z"],
  ["2026-07-01T08:00:00Z", "Asia/Kathmandu", "2026-07-01T02:15:00.000Z"],
])("clocks that show %s in %s do so at %s", (shown, zone, instant) => {
  expect(new Date(instantOf(at(shown), zone)).toISOString()).toBe(instant);
});

test("an input shows the clocks of a zone, and is read by them", () => {
  expect(inputValue(at("2026-07-01T12:00:00Z"), "America/New_York")).toBe("2026-07-01T08:00");
  expect(inputTime("2026-07-01T08:00", "America/New_York")).toBe(at("2026-07-01T12:00:00Z"));
});

test("the clocks of a zone are made once: the form of a range reads them often", () => {
  inputValue(0, "Europe/Oslo");
  const made = vi.spyOn(Intl, "DateTimeFormat");
  onTestFinished(() => made.mockRestore());
  expect(inputTime("2026-07-01T10:00", "Europe/Oslo")).toBe(at("2026-07-01T08:00:00Z"));
  expect(made).not.toHaveBeenCalled();
});

test("an input that nobody changed keeps its instant, of an hour that comes twice too", () => {
  for (const [zone, ...instants] of [
    ["Europe/Berlin", "2026-10-25T00:30:00.000Z", "2026-10-25T01:30:00.000Z"],
    ["America/St_Johns", "2026-11-01T04:00:00.000Z", "2026-11-01T05:00:00.000Z"],
  ] as const) {
    for (const given of instants) expect(inputInstant(inputValue(at(given), zone), zone, at(given))).toBe(given);
  }
  expect(inputInstant("2026-10-25T04:30", "Europe/Berlin", at("2026-10-25T00:30:00Z")))
    .toBe("2026-10-25T03:30:00.000Z");
});

test.each([
  ["2026-10-25T02:30", "Europe/Berlin", /2:30.*(GMT\+1|CET)\.$/], // comes twice
  ["2026-11-01T01:30", "America/New_York", /1:30.*(GMT-4|EDT)\.$/],
  ["2026-04-05T01:45", "Australia/Lord_Howe", /1:45.*(GMT\+(10:30|11)|LHDT|LHST)\.$/], // half an hour does
  ["2026-03-29T02:30", "Europe/Berlin", /3:30.*(GMT\+2|CEST)\.$/], // never comes
])("of %s in %s an input says what it means", (typed, zone, meant) => {
  expect(clocksChange(typed, zone)).toMatch(meant);
});

test("an input says nothing of a time that comes once, and which one it was given of one that comes twice", () => {
  const once = ["2026-10-25T01:59", "2026-10-25T03:00", "2026-07-01T08:00"];
  for (const typed of ["", "0002-03-01T10:00", "120266-03-01T10:00", ...once]) {
    expect(clocksChange(typed, "Europe/Berlin")).toBeUndefined();
  }
  expect(clocksChange("2026-10-25T02:30", "Europe/Berlin", at("2026-10-25T00:30:00Z")))
    .toMatch(/2:30.*(GMT\+2|CEST)\.$/);
});

test("a weekly window begins at the same time of day, summer and winter", () => {
  // Mondays at 8:00 in Zurich: 7:00 UTC in winter, 6:00 in summer.
  expect(begins([window({ weekdays: [1] })], "2026-03-20T00:00:00Z", "2026-04-01T00:00:00Z"))
    .toEqual(["2026-03-23T07:00:00.000Z", "2026-03-30T06:00:00.000Z"]);
});

test("the days of a window are those of its zone", () => {
  // Mondays at 1:00 in Auckland are Sundays in UTC.
  expect(begins([window({ start_time: "2026-06-07T13:00:00Z", time_zone: "Pacific/Auckland", weekdays: [1] })],
    "2026-06-10T00:00:00Z", "2026-06-16T00:00:00Z"))
    .toEqual(["2026-06-14T13:00:00.000Z"]);
});

test("one that is under way is listed, and none before the first or after the last", () => {
  const weekly = window({ weekdays: [1, 4], until: "2026-03-09T06:00:00Z" });
  expect(begins([weekly], "2026-02-20T00:00:00Z", "2026-04-01T00:00:00Z"))
    .toEqual(["2026-03-02T07:00:00.000Z", "2026-03-05T07:00:00.000Z"]);
  expect(begins([weekly], "2026-03-05T08:00:00Z", "2026-03-06T00:00:00Z")).toEqual(["2026-03-05T07:00:00.000Z"]);
  expect(begins([window({})], "2026-03-02T08:59:59Z", "2026-03-03T00:00:00Z")).toHaveLength(1);
  expect(begins([window({})], "2026-03-02T09:00:00Z", "2026-03-03T00:00:00Z")).toHaveLength(0);
});

test("recurrence is told in words", () => {
  expect(recurrence({ weekdays: [] })).toBe("once");
  expect(recurrence({ weekdays: [1, 4] })).toBe("every Monday and Thursday");
  expect(recurrence({ weekdays: [0, 1, 2, 3, 4, 5, 6] })).toBe("every day");
});
