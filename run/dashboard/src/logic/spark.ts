// The line of a sensor's last day, small.
import type { Columns } from "./series";

const halfHour = 1800;

/** A sparkline's text as the columns of a chart: the first in tenths of a degree, each other as its difference. */
export function sparkColumns(sparkline: string, start: string): Columns {
  const first = Date.parse(start) / 1000;
  const columns: Columns = { time: [], mean: [], low: [], high: [] };
  let tenths = 0;
  for (const [i, part] of (sparkline === "" ? [] : sparkline.split(",")).entries()) {
    if (part !== "") tenths += Number(part);
    columns.time.push(first + (i + 0.5) * halfHour);
    columns.mean.push(part === "" ? null : tenths / 10);
  }
  return columns;
}

/** An SVG path through values over times, broken at gaps, in a box of width × height. */
export function sparkPath(columns: Columns, start: number, end: number, width: number, height: number): string {
  const known = columns.mean.filter((value) => value !== null);
  if (known.length === 0) return "";
  const low = Math.min(...known);
  const high = Math.max(...known);
  // At least one degree, so that noise does not fill the height.
  const middle = (low + high) / 2;
  const range = Math.max(high - low, 1);
  let pen = "M";
  return columns.mean
    .map((value, i) => {
      if (value === null) {
        pen = "M";
        return "";
      }
      const x = (((columns.time[i] ?? 0) - start) / (end - start)) * width;
      const y = height / 2 - ((value - middle) / range) * (height - 4);
      const step = `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
      pen = "L";
      return step;
    })
    .join("");
}
