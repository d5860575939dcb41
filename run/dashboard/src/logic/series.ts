// Readings and buckets as columns for a chart.
import type { components } from "../api/schema";
import { dewPoint } from "./climate";

export interface Point {
  timestamp: string;
  temperature: number | null;
  humidity: number | null;
  min_temperature?: number | null;
  max_temperature?: number | null;
  min_humidity?: number | null;
  max_humidity?: number | null;
}

/** Columns in the form of uPlot; null is a gap. Times are seconds since the epoch. */
export interface Columns {
  time: number[];
  mean: (number | null)[];
  low: (number | null)[];
  high: (number | null)[];
}

/**
 * How many seconds without a reading are a gap in a chart: more than two buckets, and three intervals of the
 * node. Where its interval is not known, the usual distance of its points takes the interval's place.
 */
export function gapOf(points: readonly Pick<Point, "timestamp">[], bucket: number,
  interval: number | null | undefined): number {
  const times = points.map(({ timestamp }) => Date.parse(timestamp) / 1000);
  const distances = times.slice(1).map((time, i) => time - (times[i] ?? time)).sort((a, b) => a - b);
  return Math.max(2 * bucket, 3 * (interval ?? distances[Math.floor(distances.length / 2)] ?? 0));
}

/** Of how many distances the middle one is what was usual at a time. */
const around = 5;

/**
 * Columns of the points that have a quantity, broken where two are further apart than a gap of so many seconds,
 * and than three intervals of that time: the node may have sent less often then.
 */
export function columnsOf(points: readonly Point[], quantity: "temperature" | "humidity", gap: number): Columns {
  const columns: Columns = { time: [], mean: [], low: [], high: [] };
  const known = points.filter((point) => point[quantity] !== null);
  const times = known.map(({ timestamp }) => Date.parse(timestamp) / 1000);
  const distances = times.slice(1).map((time, i) => time - (times[i] ?? time));
  const usualAt = (i: number) => {
    const first = Math.max(0, Math.min(i - (around - 1) / 2, distances.length - around));
    return distances.slice(first, first + around).sort((a, b) => a - b)[(around - 1) / 2] ?? 0;
  };
  for (const [i, point] of known.entries()) {
    const time = times[i] ?? 0;
    const distance = distances[i - 1] ?? 0;
    if (distance > gap + 0.001 && (distances.length < around || distance > 3 * usualAt(i - 1))) {
      columns.time.push(time - distance / 2);
      columns.mean.push(null);
      columns.low.push(null);
      columns.high.push(null);
    }
    columns.time.push(time);
    columns.mean.push(point[quantity]);
    columns.low.push(point[`min_${quantity}`] ?? point[quantity]);
    columns.high.push(point[`max_${quantity}`] ?? point[quantity]);
  }
  return columns;
}

/** Where a value is usual at a time, in seconds since the epoch. */
export interface Usual { time: number; low: number; high: number }

const hour = 3600;

/** The bands of hours as stretches without a gap: at the middle of each hour, and at both ends of a stretch. */
export function usualOf(hours: readonly components["schemas"]["UsualHour"][],
  chart: "temperature" | "humidity" | "dew_point"): Usual[][] {
  const stretches: Usual[][] = [];
  let until = NaN;
  if (chart === "humidity") return stretches;
  for (const band of hours) {
    const [low, high] = [band[`${chart}_low`], band[`${chart}_high`]];
    if (low === null || high === null) continue;
    const time = Date.parse(band.timestamp) / 1000;
    if (time !== until) stretches.push([{ time, low, high }]);
    else stretches.at(-1)?.pop();
    until = time + hour;
    stretches.at(-1)?.push({ time: time + hour / 2, low, high }, { time: until, low, high });
  }
  return stretches;
}

/** The dew point of the means of each bucket; of the extremes nobody knows which belong together. */
export function dewColumns(temperature: Columns, humidity: Columns): Columns {
  const known = new Map(humidity.time.map((time, i) => [time, humidity.mean[i]]));
  const mean = temperature.mean.map((value, i) => {
    const moisture = known.get(temperature.time[i] ?? NaN);
    return value === null || moisture === null || moisture === undefined ? null : dewPoint(value, moisture);
  });
  return { time: temperature.time, mean, low: mean, high: mean };
}

/** Columns of an earlier time, so many seconds later. */
export const shifted = (columns: Columns, by: number): Columns =>
  ({ ...columns, time: columns.time.map((time) => time + by) });

type Summed = Point & { count: number };

/** Lowest, mean and highest of all readings of a range, or null without one. */
export function extremesOf(buckets: readonly Summed[], quantity: "temperature" | "humidity"): {
  low: number; mean: number; high: number;
} | null {
  const known = buckets.filter((bucket) => bucket[quantity] !== null);
  if (known.length === 0) return null;
  const readings = known.reduce((sum, { count }) => sum + count, 0);
  return {
    low: Math.min(...known.map((bucket) => bucket[`min_${quantity}`] ?? Infinity)),
    mean: known.reduce((sum, bucket) => sum + (bucket[quantity] ?? 0) * bucket.count, 0) / readings,
    high: Math.max(...known.map((bucket) => bucket[`max_${quantity}`] ?? -Infinity)),
  };
}

/** Columns with a newer reading at their end. */
export function withNewest(columns: Columns, time: number, value: number): Columns {
  if (time <= (columns.time.at(-1) ?? -Infinity)) return columns;
  return { time: [...columns.time, time], mean: [...columns.mean, value], low: [...columns.low, value],
    high: [...columns.high, value] };
}

/** The mean nearest to a time, or null where there is none within so many seconds. */
export function valueAt({ time, mean }: Columns, at: number, within: number): number | null {
  let best: number | null = null;
  let least = within;
  for (const [i, known] of time.entries()) {
    const distance = Math.abs(known - at);
    if (distance > least || mean[i] == null) continue;
    least = distance;
    best = mean[i] ?? null;
  }
  return best;
}
