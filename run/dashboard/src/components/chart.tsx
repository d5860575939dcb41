// A chart of one quantity over time: mean, band from minimum to maximum, threshold,
// alerts, forecast. Only the pages that have charts load it.
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Span } from "../logic/episodes";
import { decimal, plural, utcTime } from "../logic/format";
import type { Columns } from "../logic/series";

export interface ChartProps {
  label: string;
  unit: string;
  /** The custom property of its colour. */
  colour: "--temperature" | "--humidity";
  columns: Columns;
  /** Seconds since the epoch. */
  start: number;
  end: number;
  limit?: number;
  /** When the threshold was exceeded. */
  alerts?: readonly Span[];
  forecast?: readonly { time: number; value: number }[];
  /** The reading that the prediction is about. */
  marked?: number;
  onRange?: (start: number, end: number) => void;
}

const height = 240;

/** Loads the chart component once for several charts. */
export default function Charts({ children }: { children: (chart: typeof Chart) => ComponentChildren }) {
  return children(Chart);
}

function Chart(props: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const onRange = useRef(props.onRange);
  onRange.current = props.onRange;
  const { columns, start, end, limit, alerts, forecast, marked, unit, colour, label } = props;

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const draw = () => {
      const begun = performance.now();
      const plot = new uPlot(options(element, props, onRange), dataOf(columns, forecast), element);
      performance.measure("chart", { start: begun, end: performance.now() });
      return plot;
    };
    let plot = draw();
    const resize = new ResizeObserver(() => {
      if (element.clientWidth > 0 && element.clientWidth !== plot.width) plot.setSize({ width: element.clientWidth, height });
    });
    resize.observe(element);
    const redraw = () => {
      plot.destroy();
      plot = draw();
    };
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", redraw);
    addEventListener("themechange", redraw);
    return () => {
      removeEventListener("themechange", redraw);
      dark.removeEventListener("change", redraw);
      resize.disconnect();
      plot.destroy();
    };
  }, [columns, start, end, limit, alerts, forecast, marked, unit, colour, label]);

  return <div ref={box} class="chart" role="img" aria-label={summary(props)} />;
}

/** The chart as a sentence, for screen readers. */
function summary({ label, unit, columns, limit, alerts }: ChartProps): string {
  let low = Infinity;
  let high = -Infinity;
  for (const value of columns.low) if (value !== null && value < low) low = value;
  for (const value of columns.high) if (value !== null && value > high) high = value;
  if (low === Infinity) return `${label}: no readings in this range`;
  const limited = limit === undefined ? "" : `, limit ${decimal(limit)} ${unit}`;
  const raised = (alerts ?? []).reduce((sum, span) => sum + span.alerts, 0);
  const alerted = raised > 0 ? `, ${plural(raised, "alert")}` : "";
  return `${label} from ${decimal(low)} to ${decimal(high)} ${unit}${limited}${alerted}`;
}

function dataOf(columns: Columns, forecast: ChartProps["forecast"]): uPlot.AlignedData {
  const ahead = forecast ?? [];
  const blank = ahead.map(() => null);
  // The forecast begins at the last reading, so that the two lines meet.
  const past: (number | null)[] = columns.mean.map((value, i) => (ahead.length > 0 && i === columns.mean.length - 1 ? value : null));
  return [
    [...columns.time, ...ahead.map((step) => step.time)],
    [...columns.high, ...blank], [...columns.low, ...blank], [...columns.mean, ...blank],
    [...past, ...ahead.map((step) => step.value)],
  ];
}

function options(element: HTMLElement, props: ChartProps, onRange: { current?: (start: number, end: number) => void }): uPlot.Options {
  const css = getComputedStyle(element);
  const property = (name: string) => css.getPropertyValue(name).trim();
  const line = property(props.colour);
  const band = property(`${props.colour}-band`);
  const text = property("--text-soft");
  const grid = { stroke: property("--line"), width: 1 };
  const font = `12px ${property("--font")}`;
  const shown = (_: uPlot, value: number | null) => (value === null ? "–" : `${decimal(value)} ${props.unit}`);
  return {
    width: Math.max(element.clientWidth, 200), height,
    scales: {
      x: { time: true, range: [props.start, props.end] },
      y: { range: (_, low, high) => yRange(low, high, props.limit) },
    },
    axes: [
      { stroke: text, grid, ticks: grid, font, space: 64, values: dates },
      { stroke: text, grid, ticks: grid, font, size: 52, values: (_, ticks) => ticks.map((tick) => `${Number(tick.toFixed(1))}${props.unit === "%" ? " %" : "°"}`) },
    ],
    series: [
      { label: "Time", value: (_, seconds: number | null) => (seconds === null ? "–" : `${new Date(seconds * 1000).toLocaleString()} (${utcTime(seconds * 1000)})`) },
      { label: "Highest", stroke: band, width: 1, points: { show: false }, value: shown },
      { label: "Lowest", stroke: band, width: 1, points: { show: false }, value: shown },
      { label: props.label, stroke: line, width: 2, value: shown },
      { label: "Forecast", stroke: line, width: 2, dash: [4, 4], value: shown, show: (props.forecast?.length ?? 0) > 0 },
    ],
    bands: [{ series: [1, 2], fill: band }],
    cursor: { drag: { x: true, y: false, setScale: false } },
    hooks: {
      draw: [(plot) => drawMarks(plot, props, property)],
      setSelect: [(plot) => {
        if (plot.select.width < 4) return;
        const from = plot.posToVal(plot.select.left, "x");
        const to = plot.posToVal(plot.select.left + plot.select.width, "x");
        plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        onRange.current?.(from, to);
      }],
    },
  };
}

/** Labels of the time axis, by the distance between two: a 24-hour clock, and names of days. */
const minute = 60;
const day = 86_400;
const dates: NonNullable<uPlot.Axis["values"]> = [
  // distance, label, and what is added below where the year, month, day, hour, minute or second changes
  [day, "{D} {MMM}", null, null, null, null, null, null, 1],
  [minute, "{HH}:{mm}", "\n{D} {MMM}", null, "\n{D} {MMM}", null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", "\n{D} {MMM}", null, "\n{D} {MMM}", null, null, null, 1],
];

/** The range of the value axis: the values and, unless it is far off, the threshold. At least two units. */
function yRange(low: number | null, high: number | null, limit: number | undefined): [number, number] {
  if (low === null || high === null) return [0, 1];
  const top = limit !== undefined && limit - high < Math.max(10, 2 * (high - low)) ? Math.max(high, limit) : high;
  const bottom = limit !== undefined && low > limit ? limit : low;
  const margin = Math.max((top - bottom) * 0.08, 1);
  return [bottom - margin, top + margin];
}

function drawMarks(plot: uPlot, props: ChartProps, property: (name: string) => string) {
  const { ctx, bbox } = plot;
  const ratio = devicePixelRatio;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.fillStyle = ctx.strokeStyle = property("--bad");
  ctx.lineWidth = 1.5 * ratio;
  if (props.limit !== undefined) {
    const y = plot.valToPos(props.limit, "y", true);
    ctx.setLineDash([8 * ratio, 5 * ratio]);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    ctx.setLineDash([]);
    ctx.font = `${12 * ratio}px ${property("--font")}`;
    ctx.textAlign = "right";
    ctx.fillText(`limit ${decimal(props.limit)} ${props.unit}`, bbox.left + bbox.width - 6 * ratio, y - 5 * ratio);
  }
  const foot = bbox.top + bbox.height;
  for (const { start, end } of props.alerts ?? []) {
    const x = plot.valToPos(start, "x", true);
    ctx.fillRect(x, foot - 3 * ratio, plot.valToPos(end, "x", true) - x, 3 * ratio);
    ctx.beginPath();
    ctx.moveTo(x, foot - 9 * ratio);
    ctx.lineTo(x - 5 * ratio, foot);
    ctx.lineTo(x + 5 * ratio, foot);
    ctx.fill();
  }
  if (props.marked !== undefined) {
    const x = plot.valToPos(props.marked, "x", true);
    ctx.strokeStyle = property("--text");
    ctx.setLineDash([3 * ratio, 3 * ratio]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, foot);
    ctx.stroke();
  }
  ctx.restore();
}
