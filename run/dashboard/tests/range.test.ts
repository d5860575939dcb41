import { expect, test } from "vitest";
import { boundsOf, rangeOf, withRange, zoomedOut } from "../src/logic/range";
import { dewColumns, valueAt, withNewest } from "../src/logic/series";

const search = (text: string) => new URLSearchParams(text);
const hour = 3_600_000;

test.each([
  ["", { period: "24h" }], ["range=7d", { period: "7d" }], ["range=6h", { period: "6h" }],
  ["range=1y", { period: "24h" }],
  ["from=2026-03-01T00:00:00Z&to=2026-03-01T06:00:00Z", { start: Date.UTC(2026, 2, 1), end: Date.UTC(2026, 2, 1, 6) }],
  ["from=2026-03-02&to=2026-03-01", { period: "24h" }], ["from=x&to=2026-03-01", { period: "24h" }],
])("the address %s is a range", (text, expected) => expect(rangeOf(search(text))).toEqual(expected));

test("a range goes into the address and back, and leaves what else is there", () => {
  for (const range of [{ period: "1h" }, { period: "24h" }, { start: 0, end: hour }] as const) {
    const address = withRange(search("with=a%2Cb&range=30d"), range);
    expect(address.get("with")).toBe("a,b");
    expect(rangeOf(address)).toEqual(range);
  }
});

test("zooming out keeps the middle, and ends now", () => {
  expect(zoomedOut(10 * hour, 12 * hour, 100 * hour)).toEqual({ start: 9 * hour, end: 13 * hour });
  expect(zoomedOut(98 * hour, 100 * hour, 100 * hour)).toEqual({ start: 96 * hour, end: 100 * hour });
});

test("a period ends now, and stays the same for a while", () => {
  const [start, end] = boundsOf({ period: "24h" }, 1_000_000_000_000);
  expect(end).toBeGreaterThanOrEqual(1_000_000_000_000);
  expect(end - start).toBe(24 * hour);
  expect(boundsOf({ period: "24h" }, end - 1)).toEqual([start, end]);
});

const columns = { time: [0, 10, 20, 30], mean: [20, null, 22, 23], low: [20, null, 22, 23], high: [20, null, 22, 23] };

test("the value under a cursor is the nearest that is near", () => {
  expect(valueAt(columns, 21, 5)).toBe(22);
  expect(valueAt(columns, 10, 5)).toBeNull();
  expect(valueAt(columns, 11, 10)).toBe(22);
  expect(valueAt(columns, 100, 5)).toBeNull();
});

test("a newer reading comes at the end, an older one nowhere", () => {
  expect(withNewest(columns, 40, 24).mean.at(-1)).toBe(24);
  expect(withNewest(columns, 30, 24)).toBe(columns);
});

test("the dew point is that of the means", () => {
  const humidity = { ...columns, mean: [50, null, 50, 0] };
  const [first, gap, , dry] = dewColumns(columns, humidity).mean;
  expect(first).toBeCloseTo(9.3, 1);
  expect([gap, dry]).toEqual([null, null]);
});
