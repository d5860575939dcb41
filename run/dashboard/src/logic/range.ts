// The range of time that charts show, and its place in the address.

export const lengths = {
  "1h": 3_600_000, "6h": 6 * 3_600_000, "24h": 86_400_000, "7d": 7 * 86_400_000, "30d": 30 * 86_400_000,
} as const;
export type Period = keyof typeof lengths;
/** A period that ends now, or any other range, in milliseconds. */
export type Range = { period: Period } | { period?: undefined; start: number; end: number };

/** The range of an address; a day where it has none, or none that makes sense. */
export function rangeOf(search: URLSearchParams): Range {
  const [start, end] = [Date.parse(search.get("from") ?? ""), Date.parse(search.get("to") ?? "")];
  if (start < end) return { start, end };
  const period = search.get("range") ?? "";
  return { period: period in lengths ? (period as Period) : "24h" };
}

/** An address with a range. */
export function withRange(search: URLSearchParams, range: Range): URLSearchParams {
  const next = new URLSearchParams(search);
  for (const name of ["range", "from", "to"]) next.delete(name);
  if (range.period === undefined) {
    next.set("from", new Date(range.start).toISOString());
    next.set("to", new Date(range.end).toISOString());
  } else if (range.period !== "24h") {
    next.set("range", range.period);
  }
  return next;
}

/**
 * How often the readings of a period are asked for again: what is newer the overview
 * tells. From a week on that is an hour.
 */
export function refreshOf(period: Period): number {
  return lengths[period] >= lengths["7d"] ? 3_600_000 : Math.max(120_000, lengths[period] / 288);
}

export function boundsOf(range: Range, now: number): [start: number, end: number] {
  if (range.period === undefined) return [range.start, range.end];
  const step = refreshOf(range.period);
  const end = Math.ceil(now / step) * step;
  return [end - lengths[range.period], end];
}

const step = 300_000;

/** What is asked for of a length until now, so that it is asked for each 5 minutes alone. */
export const askedOf = (length: number, now: number): [start: number, end: number] =>
  [Math.floor((now - length) / step) * step, Math.ceil(now / step) * step];

/** Twice as long around the same middle, and not beyond now. */
export function zoomedOut(start: number, end: number, now: number): Range {
  const half = (end - start) / 2;
  const last = Math.min(end + half, Math.max(now, end));
  return { start: last - 4 * half, end: last };
}
