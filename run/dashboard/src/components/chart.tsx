// A chart of one quantity over time: mean, band from minimum to maximum, limits,
// excursions, maintenance, forecasts, and other sensors to compare with. A chart is made
// once: new data, limits and ranges are given to the one that stands. Only the pages that
// have charts load it.
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { decimal, inUnit, plural, shownZone, timeIn, unitName, withUnit } from "../logic/format";
import type { Fan, Span } from "../logic/spans";
import type { Columns, Usual } from "../logic/series";

/** A limit of a rule. */
export interface ChartLimit { limit: number; direction: "above" | "below"; severity: "warning" | "critical" }

/** Times are seconds since the epoch, values in °C or %. */
export interface ChartProps {
  label: string;
  unit: "°C" | "%";
  /** The custom property of its colour. */
  colour: "--temperature" | "--humidity" | "--dew";
  columns: Columns;
  others?: readonly { name: string; columns: Columns }[];
  /** The others are many: they are drawn alike, below the line itself. */
  crowd?: boolean;
  /** In pixels. */
  height?: number;
  start: number;
  end: number;
  limits?: readonly ChartLimit[];
  /** The recommended range. */
  normal?: { low: number; high: number };
  /** Where it is usual: stretches that have no gap. */
  usual?: readonly (readonly Usual[])[];
  /** When it was beyond a limit or, with a band, unlike what was ordinary. */
  excursions?: readonly Span[];
  maintenance?: readonly Span[];
  fan?: Fan | undefined;
  forecast?: readonly { time: number; value: number }[];
  /** The reading that the prediction is about. */
  marked?: number;
  onRange?: (start: number, end: number) => void;
  /** Charts with the same key have one cursor. */
  cursor?: { key: string; time: number | null; onTime: (time: number | null) => void };
}

const usualHeight = 240;
const none: readonly never[] = [];

/** Loads the chart component once for several charts. */
export default function Charts({ children }: { children: (chart: typeof Chart) => ComponentChildren }) {
  return children(Chart);
}

function Chart(props: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>();
  const latest = useRef(props);
  latest.current = props;
  const { columns, others = none, forecast = none, start, end, limits, normal, usual, excursions, maintenance, fan,
    marked, unit, colour, label, cursor, height = usualHeight } = props;
  const names = others.map(({ name }) => name).join("\n");
  // A plot knows its colours, its unit and its lines from its beginning.
  const made = [unitName(unit), shownZone(), colour, label, names, cursor?.key, height];

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const draw = () => {
      plot.current?.destroy();
      plot.current = measured(() => new uPlot(options(element, latest), dataOf(latest.current), element));
    };
    draw();
    const resize = new ResizeObserver(() => {
      const width = element.clientWidth;
      if (width > 0 && width !== plot.current?.width) plot.current?.setSize({ width, height });
    });
    resize.observe(element);
    // What is printed is drawn before the listener returns.
    const media = ["(prefers-color-scheme: dark)", "(forced-colors: active)", "print"].map((query) =>
      matchMedia(query));
    for (const query of media) query.addEventListener("change", draw);
    addEventListener("themechange", draw);
    return () => {
      resize.disconnect();
      for (const query of media) query.removeEventListener("change", draw);
      removeEventListener("themechange", draw);
      plot.current?.destroy();
      plot.current = undefined;
    };
  }, made);

  const first = useRef(true);
  useEffect(() => {
    if (!first.current) measured(() => plot.current?.setData(dataOf(latest.current)));
    first.current = false;
  }, [columns, others, forecast, start, end, limits, normal, usual, excursions, maintenance, fan, marked]);

  const time = cursor?.time ?? null;
  useEffect(() => {
    const drawn = plot.current;
    if (!drawn || time === null || drawn.cursor.idx != null && drawn.data[0][drawn.cursor.idx] === time) return;
    drawn.setCursor({ left: drawn.valToPos(time, "x"), top: 0 }, false);
  }, [time]);

  return <div ref={box} class="chart" style={{ minHeight: `${height}px` }} role="img" aria-label={summary(props)} />;
}

function measured<T>(draw: () => T): T {
  const begun = performance.now();
  const result = draw();
  performance.measure("chart", { start: begun, end: performance.now() });
  return result;
}

/** The chart as a sentence, for screen readers. */
function summary(
  { label, unit, columns, limits = [], usual = [], excursions = [], maintenance = [], others = [], fan }: ChartProps,
): string {
  let low = Infinity;
  let high = -Infinity;
  for (const value of columns.low) if (value !== null && value < low) low = value;
  for (const value of columns.high) if (value !== null && value > high) high = value;
  if (low === Infinity) return `${label}: no readings in this range`;
  return [
    `${label} from ${decimal(inUnit(low, unit))} to ${withUnit(high, unit)}`,
    ...(usual.at(-1) ?? none).slice(-1).map((last) =>
      `last usual from ${decimal(inUnit(last.low, unit))} to ${withUnit(last.high, unit)}`),
    ...limits.map(({ limit, direction }) => `limit ${direction === "above" ? "" : "below "}${withUnit(limit, unit)}`),
    ...(excursions.length > 0 ? [plural(excursions.length, "excursion")] : []),
    ...(maintenance.length > 0 ? [plural(maintenance.length, "maintenance window")] : []),
    ...(fan ? [`expected to pass ${withUnit(fan.limit, unit)} between ${clock(fan.earliest)} and ${clock(fan.latest)}`]
      : []),
    ...(others.length > 0 ? [others.length > 4 ? `beside ${others.length} other sensors`
      : `beside ${others.map(({ name }) => name).join(", ")}`] : []),
  ].join(", ");
}

const clock = (seconds: number) => timeIn(seconds * 1000, { hour: "2-digit", minute: "2-digit" });

function dataOf({ columns, others = [], forecast = [], unit, crowd }: ChartProps): uPlot.AlignedData {
  const shown = (values: readonly (number | null)[]) =>
    values.map((value) => (value === null ? null : inUnit(value, unit)));
  const own: uPlot.AlignedData = [columns.time, shown(columns.high), shown(columns.low), shown(columns.mean)];
  const beside = others.map((other): uPlot.AlignedData => [other.columns.time, shown(other.columns.mean)]);
  const tables = crowd ? [...beside, own] : [own, ...beside];
  // The forecast begins at the last reading, so that the two lines meet.
  const last = columns.time.at(-1);
  const ahead = last === undefined || forecast.length === 0 ? []
    : [{ time: last, value: columns.mean.at(-1) ?? null }, ...forecast];
  tables.push([ahead.map((step) => step.time), shown(ahead.map((step) => step.value))]);
  return uPlot.join(tables);
}

/** The lines of compared sensors differ in dashes as well as in colour. */
const dashes = [[8, 4], [2, 3], [10, 3, 2, 3]];

function options(element: HTMLElement, latest: { current: ChartProps }): uPlot.Options {
  const { colour, unit, label, others = [], cursor, crowd, height = usualHeight } = latest.current;
  const css = getComputedStyle(element);
  const forced = matchMedia("(forced-colors: active)").matches;
  const colours = new Map<string, string>();
  const property = (name: string) => {
    // As the element itself would be coloured: a canvas knows neither properties nor schemes.
    if (!forced && !colours.has(name)) {
      element.style.color = `var(${name})`;
      colours.set(name, css.color);
      element.style.color = "";
    }
    if (!forced) return colours.get(name) ?? "";
    // A band must let what is drawn before it be seen, on whatever ground.
    return name.endsWith("-band") ? "#80808030"
      : name === "--line" ? "#80808060" : name === "--surface" ? "Canvas" : "CanvasText";
  };
  const line = property(colour);
  const band = forced ? "transparent" : property(`${colour}-band`);
  const text = property("--text-soft");
  const grid = { stroke: property("--line"), width: 1 };
  const font = `12px ${css.getPropertyValue("--font").trim()}`;
  const zone = shownZone();
  const hidden = { points: { show: false } };
  const own: uPlot.Series[] = [
    { label: "Highest", stroke: band, width: 1, ...hidden },
    { label: "Lowest", stroke: band, width: 1, ...hidden },
    { label, stroke: line, width: crowd ? 3 : 2 },
  ];
  const beside = others.map(({ name }, i): uPlot.Series => (crowd
    ? { label: name, stroke: property("--edge"), width: 1, ...hidden }
    : { label: name, stroke: property(`--compared${i + 1}`), width: 1.5, dash: dashes[i] ?? [], ...hidden }));
  const first = crowd ? others.length + 1 : 1;
  return {
    padding: [null, gutterOf(element), null, null],
    width: Math.max(element.clientWidth, 200), height,
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), zone),
    legend: { show: false },
    scales: {
      x: { time: true, range: () => [latest.current.start, latest.current.end] },
      y: { range: (_, low, high) => yRange(low, high, latest.current) },
    },
    axes: [
      { stroke: text, grid, ticks: grid, font, space: 72,
        values: (_, ticks, __, ___, step) => timeLabels(ticks, step) },
      // In steps that one decimal shows exactly.
      { stroke: text, grid, ticks: grid, font, size: 60, incrs: [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100],
        values: (_, ticks) => ticks.map((tick) => `${Number(tick.toFixed(1))}${unit === "%" ? " %" : "°"}`) },
    ],
    series: [
      {}, ...(crowd ? [...beside, ...own] : [...own, ...beside]),
      { label: "Forecast", stroke: line, width: 2, dash: [4, 4], ...hidden },
    ],
    bands: [{ series: [first, first + 1], fill: band }],
    cursor: {
      y: false, drag: { x: true, y: false, setScale: false },
      ...(cursor && {
        sync: { key: cursor.key, setSeries: false,
          filters: { sub: (type) => type === "mousemove" || type === "mouseleave" } },
      }),
    },
    hooks: {
      drawClear: [(plot) => drawBehind(plot, latest.current, property)],
      draw: [(plot) => drawMarks(plot, latest.current, property, font)],
      setCursor: [(plot) => {
        const { idx } = plot.cursor;
        latest.current.cursor?.onTime(idx == null ? null : (plot.data[0][idx] ?? null));
      }],
      setSelect: [(plot) => {
        if (plot.select.width < 4) return;
        const from = plot.posToVal(plot.select.left, "x");
        const to = plot.posToVal(plot.select.left + plot.select.width, "x");
        plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        latest.current.onRange?.(from, to);
      }],
    },
  };
}

const day = 86_400;

/** Labels of the time axis by the distance between two: names of days, or the clock with the day where it changes. */
function timeLabels(ticks: readonly number[], step: number): string[] {
  let before = "";
  return ticks.map((tick) => {
    const date = timeIn(tick * 1000, { day: "numeric", month: "short" });
    const changed = date !== before;
    before = date;
    if (step >= day) return date;
    const time = timeIn(tick * 1000, { hour: "2-digit", minute: "2-digit", ...(step < 60 && { second: "2-digit" }) });
    return changed ? `${time}\n${date}` : time;
  });
}

/** The range of the value axis: the values, and what is expected of them. Limits
 * never stretch it. At least two units. */
function yRange(low: number | null, high: number | null,
  { usual = [], fan, unit, start, end }: ChartProps): [number, number] {
  if (low === null || high === null) return [0, 1];
  let [bottom, top] = [low, high];
  const near = Math.max(2, high - low);
  for (const band of usual.flat()) {
    if (band.time < start || band.time > end) continue;
    const [from, to] = [inUnit(band.low, unit), inUnit(band.high, unit)];
    if (low - from < near) bottom = Math.min(bottom, from);
    if (to - high < near) top = Math.max(top, to);
  }
  if (fan) [bottom, top] = [Math.min(bottom, inUnit(fan.limit, unit)), Math.max(top, inUnit(fan.limit, unit))];
  const margin = Math.max((top - bottom) * 0.08, 1);
  return [bottom - margin, top + margin];
}

function within(plot: uPlot, draw: (ctx: CanvasRenderingContext2D, bbox: uPlot.BBox, ratio: number) => void) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  draw(ctx, bbox, devicePixelRatio);
  ctx.restore();
}

/** Behind the lines: the recommended range, what is usual, what lies beyond the limits, maintenance. */
function drawBehind(plot: uPlot, { limits = [], normal, usual = [], maintenance = [], unit }: ChartProps,
  property: (name: string) => string) {
  within(plot, (ctx, bbox, ratio) => {
    const y = (value: number) => plot.valToPos(inUnit(value, unit), "y", true);
    const foot = bbox.top + bbox.height;
    if (normal) {
      ctx.fillStyle = property("--normal-band");
      ctx.fillRect(bbox.left, y(normal.high), bbox.width, y(normal.low) - y(normal.high));
    }
    ctx.strokeStyle = property("--text-soft");
    ctx.lineWidth = ratio;
    for (const stretch of usual) {
      ctx.setLineDash([2 * ratio, 3 * ratio]);
      for (const edge of ["low", "high"] as const) {
        ctx.beginPath();
        for (const band of stretch) ctx.lineTo(plot.valToPos(band.time, "x", true), y(band[edge]));
        ctx.stroke();
      }
    }
    ctx.setLineDash([]);
    for (const { limit, direction, severity } of limits) {
      ctx.fillStyle = property(severity === "critical" ? "--bad-band" : "--warn-band");
      if (direction === "above") ctx.fillRect(bbox.left, bbox.top, bbox.width, y(limit) - bbox.top);
      else ctx.fillRect(bbox.left, y(limit), bbox.width, foot - y(limit));
    }
    ctx.fillStyle = ctx.strokeStyle = property("--text-soft");
    for (const { start, end } of maintenance) {
      const [from, to] = [plot.valToPos(start, "x", true), plot.valToPos(end, "x", true)];
      ctx.save();
      ctx.beginPath();
      ctx.rect(from, bbox.top, to - from, bbox.height);
      ctx.clip();
      ctx.globalAlpha = 0.35;
      ctx.lineWidth = ratio;
      ctx.beginPath();
      for (let x = from - bbox.height; x < to; x += 9 * ratio) {
        ctx.moveTo(x, foot);
        ctx.lineTo(x + bbox.height, bbox.top);
      }
      ctx.stroke();
      ctx.globalAlpha = 1;
      ctx.restore();
    }
  });
}

/** Over the lines: limits, excursions, what is expected, the marked reading. */
function drawMarks(plot: uPlot, props: ChartProps, property: (name: string) => string, font: string) {
  const { limits = [], excursions = [], fan, marked, unit } = props;
  drawGutter(plot, props, property, font);
  within(plot, (ctx, bbox, ratio) => {
    const x = (time: number) => plot.valToPos(time, "x", true);
    const y = (value: number) => plot.valToPos(inUnit(value, unit), "y", true);
    const stroke = (...points: [number, number][]) => {
      ctx.beginPath();
      for (const [i, point] of points.entries()) i === 0 ? ctx.moveTo(...point) : ctx.lineTo(...point);
      ctx.stroke();
    };
    const foot = bbox.top + bbox.height;
    ctx.lineWidth = 1.5 * ratio;
    for (const { limit, severity } of limits) {
      ctx.fillStyle = ctx.strokeStyle = property(severity === "critical" ? "--bad" : "--warn");
      ctx.setLineDash(severity === "critical" ? [8 * ratio, 5 * ratio] : [3 * ratio, 4 * ratio]);
      stroke([bbox.left, y(limit)], [bbox.left + bbox.width, y(limit)]);
      ctx.setLineDash([]);
    }
    for (const { start, end, low, high } of excursions) {
      ctx.fillStyle = ctx.strokeStyle = property("--bad");
      const [from, to] = [x(start), Math.max(x(end), x(start) + ratio)];
      ctx.fillRect(from, foot - 3 * ratio, to - from, 3 * ratio);
      ctx.beginPath();
      ctx.moveTo(from, foot - 9 * ratio);
      ctx.lineTo(from - 5 * ratio, foot);
      ctx.lineTo(from + 5 * ratio, foot);
      ctx.fill();
      if (low === undefined || high === undefined) continue;
      // What would have been ordinary.
      ctx.fillStyle = property("--normal-band");
      ctx.strokeStyle = property("--text-soft");
      ctx.setLineDash([2 * ratio, 2 * ratio]);
      ctx.fillRect(from, y(high), to - from, y(low) - y(high));
      ctx.strokeRect(from, y(high), to - from, y(low) - y(high));
      ctx.setLineDash([]);
    }
    if (fan) {
      ctx.fillStyle = property("--warn-band");
      ctx.strokeStyle = property("--warn");
      ctx.beginPath();
      ctx.moveTo(x(fan.time), y(fan.value));
      ctx.lineTo(x(fan.earliest), y(fan.limit));
      ctx.lineTo(x(fan.latest), y(fan.limit));
      ctx.closePath();
      ctx.fill();
      stroke([x(fan.earliest), y(fan.limit)], [x(fan.time), y(fan.value)], [x(fan.latest), y(fan.limit)]);
    }
    if (marked !== undefined) {
      ctx.strokeStyle = property("--text");
      ctx.setLineDash([3 * ratio, 3 * ratio]);
      stroke([x(marked), bbox.top], [x(marked), foot]);
    }
  });
}

/** Room for the labels of limits, right of the lines. */
const gutterOf = (element: HTMLElement) => (element.clientWidth < 520 ? 58 : 132);

/** Limits at the right edge, none over another; one that is out of range has an arrow towards it. */
function drawGutter(plot: uPlot, { limits = [], unit }: ChartProps, property: (name: string) => string, font: string) {
  const { ctx, bbox } = plot;
  const ratio = devicePixelRatio;
  const wide = gutterOf(plot.root.parentElement ?? plot.root) > 60;
  const [top, foot] = [bbox.top + 6 * ratio, bbox.top + bbox.height - 6 * ratio];
  const labels = limits.map(({ limit, direction, severity }) => {
    const at = plot.valToPos(inUnit(limit, unit), "y", true);
    const arrow = at < bbox.top ? "↑ " : at > bbox.top + bbox.height ? "↓ " : "";
    return {
      limit, at: Math.min(foot, Math.max(top, at)),
      text: arrow + (wide ? `${severity} ${direction === "above" ? ">" : "<"} ` : "") + withUnit(limit, unit), severity,
    };
  }).sort((a, b) => a.at - b.at || b.limit - a.limit);
  const apart = 14 * ratio;
  for (const [i, label] of labels.entries()) label.at = Math.max(label.at, (labels[i - 1]?.at ?? -Infinity) + apart);
  for (const [i, label] of [...labels].reverse().entries()) label.at = Math.min(label.at, foot - i * apart);
  ctx.save();
  ctx.font = font.replace(/^\d+/, String(11 * ratio));
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  for (const { at, text, severity } of labels) {
    ctx.fillStyle = property(severity === "critical" ? "--bad" : "--warn");
    ctx.fillText(text, bbox.left + bbox.width + 5 * ratio, at);
  }
  ctx.restore();
}
