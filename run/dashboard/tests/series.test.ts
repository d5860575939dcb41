import { expect, test } from "vitest";
import { columnsOf, gapOf, usualOf } from "../src/logic/series";
import { sparkPath } from "../src/logic/spark";

const at = (second: number, temperature = 20) =>
  ({ timestamp: new Date(second * 1000).toISOString(), temperature, humidity: 40 });

test.each([30, 120, 300])("three intervals of a node that sends each %s s are no gap, more are one", (interval) => {
  const points = [at(0), at(interval), at(4 * interval), at(7 * interval + 1)];
  expect(columnsOf(points, "temperature", gapOf(points, 1, interval)).mean).toEqual([20, 20, 20, null, 20]);
});

test("without a known interval the usual distance of the points takes its place", () => {
  const points = [at(0), at(300), at(600), at(900), at(1801)];
  expect(columnsOf(points, "temperature", gapOf(points, 1, null)).mean).toEqual([20, 20, 20, 20, null, 20]);
});

test("a time in which the node sent less often is no row of gaps, but an outage of then is one", () => {
  const rare = Array.from({ length: 10 }, (_, i) => at(300 * (i < 5 ? i : i + 9)));
  const often = Array.from({ length: 10 }, (_, i) => at(300 * 18 + 30 * (i + 1)));
  const { time, mean } = columnsOf([...rare, ...often], "temperature", gapOf([...rare, ...often], 1, 30));
  expect(time.filter((_, i) => mean[i] === null)).toEqual([300 * 9]);
});

test("wide buckets make gaps wider", () => {
  const gap = gapOf([at(0), at(3600)], 3600, 30);
  expect(columnsOf([at(0), at(3600), at(10_800)], "temperature", gap).mean).toEqual([20, 20, 20]);
  expect(columnsOf([at(0), at(3600), at(14_400)], "temperature", gap).mean).toEqual([20, 20, null, 20]);
});

test("the band is that of the bucket, or the reading itself", () => {
  const columns = columnsOf([{ ...at(0), min_temperature: 18, max_temperature: 23 }, at(30, 21)], "temperature", 30);
  expect(columns.low).toEqual([18, 21]);
  expect(columns.high).toEqual([23, 21]);
});

test("a sparkline is broken at gaps and flat when nothing happens", () => {
  const columns = { time: [0, 10, 20, 30], mean: [20, null, 20, 20], low: [], high: [] };
  expect(sparkPath(columns, 0, 40, 40, 20)).toBe("M0.0 10.0M20.0 10.0L30.0 10.0");
  expect(sparkPath({ time: [], mean: [], low: [], high: [] }, 0, 1, 40, 20)).toBe("");
});

test("what is usual goes from middle to middle of its hours, and not over one that is not known", () => {
  const band = (hour: number, low: number | null) => ({
    timestamp: at(hour * 3600).timestamp, temperature_low: low, temperature_high: low === null ? null : low + 2,
    dew_point_low: null, dew_point_high: null,
  });
  expect(usualOf([band(0, 20), band(1, 21), band(2, null), band(3, 22)], "temperature")).toEqual([
    [{ time: 0, low: 20, high: 22 }, { time: 1800, low: 20, high: 22 }, { time: 5400, low: 21, high: 23 },
      { time: 7200, low: 21, high: 23 }],
    [{ time: 10_800, low: 22, high: 24 }, { time: 12_600, low: 22, high: 24 }, { time: 14_400, low: 22, high: 24 }],
  ]);
  for (const chart of ["humidity", "dew_point"] as const) expect(usualOf([band(0, 20)], chart)).toEqual([]);
});
