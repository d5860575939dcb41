// How many past readings a new threshold would have been exceeded by: exactly, and
// without loading them all. Buckets that lie wholly below or above the threshold are
// counted by their minimum, maximum and count. Only the readings of mixed ones are loaded.

export interface Bucket {
  timestamp: string;
  min_temperature: number;
  max_temperature: number;
  min_humidity: number;
  max_humidity: number;
  count: number;
}

export interface Reading {
  temperature: number;
  humidity: number;
}

export type Quantity = "temperature" | "humidity";

/** A range of time in milliseconds since the epoch, its end excluded. */
export interface Span {
  start: number;
  end: number;
}

export interface Sorted {
  /** Readings in buckets that are wholly above the threshold. */
  sure: number;
  /** Ranges of mixed buckets, adjoining ones joined, whose readings must be loaded. */
  mixed: Span[];
}

/** Sorts buckets of a width in milliseconds by a threshold. Above means strictly greater, as detection compares. */
export function sortBuckets(buckets: readonly Bucket[], width: number, quantity: Quantity, limit: number): Sorted {
  const sorted: Sorted = { sure: 0, mixed: [] };
  for (const bucket of buckets) {
    if (bucket[`max_${quantity}`] <= limit) continue;
    if (bucket[`min_${quantity}`] > limit) {
      sorted.sure += bucket.count;
      continue;
    }
    const start = Date.parse(bucket.timestamp);
    const last = sorted.mixed.at(-1);
    if (last && last.end === start) last.end = start + width;
    else sorted.mixed.push({ start, end: start + width });
  }
  return sorted;
}

export function countOver(readings: readonly Reading[], quantity: Quantity, limit: number): number {
  return readings.reduce((count, reading) => count + (reading[quantity] > limit ? 1 : 0), 0);
}

const minute = 60_000;
const day = 24 * 60 * minute;
/** Half an hour divides both ranges evenly. */
export const bucketWidth = 30 * minute;

/** The source of readings: the API, or a table in a test. */
export interface Source {
  buckets(sensorID: string, span: Span, points: number): Promise<Bucket[]>;
  readings(sensorID: string, span: Span): Promise<Reading[]>;
}

export interface Counts {
  week: number;
  month: number;
}

/** Alerts that a threshold would have raised for one sensor in the last 7 and 30 days. */
export async function previewSensor(
  source: Source, sensorID: string, now: number, limits: Record<Quantity, number>,
): Promise<Record<Quantity, Counts>> {
  const split = now - 7 * day;
  const countsOf = async (span: Span) => {
    const buckets = await source.buckets(sensorID, span, (span.end - span.start) / bucketWidth);
    const over = async (quantity: Quantity) => {
      const { sure, mixed } = sortBuckets(buckets, bucketWidth, quantity, limits[quantity]);
      let count = sure;
      for (const part of mixed) count += countOver(await source.readings(sensorID, part), quantity, limits[quantity]);
      return count;
    };
    return { temperature: await over("temperature"), humidity: await over("humidity") };
  };
  const before = await countsOf({ start: now - 30 * day, end: split });
  const week = await countsOf({ start: split, end: now });
  const join = (quantity: Quantity) => ({ week: week[quantity], month: week[quantity] + before[quantity] });
  return { temperature: join("temperature"), humidity: join("humidity") };
}
