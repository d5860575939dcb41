// Readings and buckets as columns for a chart.

export interface Point {
  timestamp: string;
  temperature: number;
  humidity: number;
  min_temperature?: number;
  max_temperature?: number;
  min_humidity?: number;
  max_humidity?: number;
}

/** Columns in the form of uPlot; null is a gap. Times are seconds since the epoch. */
export interface Columns {
  time: number[];
  mean: (number | null)[];
  low: (number | null)[];
  high: (number | null)[];
}

/** Four intervals of the usual 30 s. */
const leastGap = 120;

/**
 * Columns of one quantity, with a gap wherever nothing was measured for longer
 * than two buckets (and two minutes). bucket is the width of one in seconds.
 */
export function columnsOf(points: readonly Point[], quantity: "temperature" | "humidity", bucket: number): Columns {
  const gap = Math.max(2 * bucket, leastGap) + 0.001;
  const columns: Columns = { time: [], mean: [], low: [], high: [] };
  let previous: number | undefined;
  for (const point of points) {
    const time = Date.parse(point.timestamp) / 1000;
    if (previous !== undefined && time - previous > gap) {
      columns.time.push((previous + time) / 2);
      columns.mean.push(null);
      columns.low.push(null);
      columns.high.push(null);
    }
    columns.time.push(time);
    columns.mean.push(point[quantity]);
    columns.low.push(point[`min_${quantity}`] ?? point[quantity]);
    columns.high.push(point[`max_${quantity}`] ?? point[quantity]);
    previous = time;
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
