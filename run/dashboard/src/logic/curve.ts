// The hour of an incident's worst value, as a curve.
import type { Incident } from "./incidents";
import type { Columns } from "./series";

/** A curve in a box of width × height: its line, its limit, and the cone to the next limit. */
export interface Curve { line: string; limit: number | null; cone: string | null }

const hour = 3600;

/** The last hour until a time in seconds, and as much of the forecast as fits into a further half hour. */
export function curveOf({ now, worst }: Incident, { time, mean }: Columns, until: number, width: number,
  height: number): Curve | null {
  const known = mean.filter((value, i): value is number => value !== null && (time[i] ?? 0) >= until - hour);
  if (known.length < 2) return null;
  const latest = now?.latest ? Date.parse(now.latest) / 1000 : until;
  const end = Math.max(until, Math.min(latest, until + hour / 2));
  const next = now?.next_limit ?? null;
  const shown = [...known, worst.limit ?? known[0] ?? 0, ...(next === null ? [] : [next])];
  const [low, high] = [Math.min(...shown) - 0.5, Math.max(...shown) + 0.5];
  const x = (at: number) => Math.min(width, ((at - until + hour) / (end - until + hour)) * width);
  const y = (value: number) => height - ((value - low) / (high - low)) * height;
  const point = (at: number, value: number) => `${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
  let pen = "M";
  const line = mean.map((value, i) => {
    if (value === null || (time[i] ?? 0) < until - hour) {
      pen = "M";
      return "";
    }
    const step = pen + point(time[i] ?? 0, value);
    pen = "L";
    return step;
  }).join("");
  const [at, value] = [time.at(-1), mean.at(-1)];
  const cone = next === null || !now?.earliest || at === undefined || value == null ? null
    : `M${point(at, value)}L${point(Date.parse(now.earliest) / 1000, next)}L${point(latest, next)}Z`;
  return { line, limit: worst.limit === null ? null : y(worst.limit), cone };
}
