import { expect, test } from "vitest";
import { bucketWidth, previewSensor, sortBuckets, type Bucket, type Source, type Span } from "../src/logic/preview";

const now = Date.parse("2026-03-31T12:00:00Z");
const day = 86_400_000;

interface Timed { time: number; temperature: number; humidity: number }

/** The service's answers over a table: buckets of equal width, and raw ranges. */
function sourceOf(table: Timed[]) {
  const raw: Span[] = [];
  const within = (span: Span) => table.filter(({ time }) => time >= span.start && time < span.end);
  const source: Source = {
    buckets: async (_, span, points) => {
      const width = (span.end - span.start) / points;
      const groups = new Map<number, Timed[]>();
      for (const row of within(span)) {
        const i = Math.floor((row.time - span.start) / width);
        groups.set(i, [...(groups.get(i) ?? []), row]);
      }
      return [...groups].sort(([a], [b]) => a - b).map(([i, rows]): Bucket => ({
        timestamp: new Date(span.start + i * width).toISOString(), count: rows.length,
        min_temperature: Math.min(...rows.map((r) => r.temperature)), max_temperature: Math.max(...rows.map((r) => r.temperature)),
        min_humidity: Math.min(...rows.map((r) => r.humidity)), max_humidity: Math.max(...rows.map((r) => r.humidity)),
      }));
    },
    readings: async (_, span) => {
      raw.push(span);
      return within(span);
    },
  };
  return { source, raw };
}

test("the count is exactly that of the readings above the limit", async () => {
  // Every five minutes for 31 days: a day's wave with noise, and a boundary in mid-wave.
  const table: Timed[] = [];
  for (let time = now - 31 * day; time < now; time += 300_000) {
    const noise = Math.sin(time / 977_000) * 2;
    table.push({ time, temperature: 25 + 8 * Math.sin((time / day) * 2 * Math.PI) + noise, humidity: 45 + 10 * Math.cos(time / day) + noise });
  }
  const { source, raw } = sourceOf(table);
  const limits = { temperature: 28.4, humidity: 50 };
  const counts = await previewSensor(source, "a", now, limits);
  for (const quantity of ["temperature", "humidity"] as const) {
    const over = table.filter((row) => row[quantity] > limits[quantity]);
    expect(counts[quantity].week).toBe(over.filter(({ time }) => time >= now - 7 * day).length);
    expect(counts[quantity].month).toBe(over.filter(({ time }) => time >= now - 30 * day).length);
  }
  expect(counts.temperature.month).toBeGreaterThan(counts.temperature.week);
  const read = raw.reduce((sum, span) => sum + span.end - span.start, 0);
  expect(read).toBeLessThan(30 * day);
});

test("a bucket wholly over or under the limit is not read", () => {
  const bucket = (i: number, low: number, high: number): Bucket => ({
    timestamp: new Date(now + i * bucketWidth).toISOString(), count: 60,
    min_temperature: low, max_temperature: high, min_humidity: 0, max_humidity: 0,
  });
  // A value at the limit is not over it.
  expect(sortBuckets([bucket(0, 20, 30), bucket(1, 30.1, 33)], bucketWidth, "temperature", 30)).toEqual({ sure: 60, mixed: [] });
  // Neighbours are read at once, others apart.
  expect(sortBuckets([bucket(0, 20, 31), bucket(1, 30, 31), bucket(4, 20, 31)], bucketWidth, "temperature", 30).mixed).toEqual([
    { start: now, end: now + 2 * bucketWidth }, { start: now + 4 * bucketWidth, end: now + 5 * bucketWidth },
  ]);
});
