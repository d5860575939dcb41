// The past of a sensor: charts with one cursor, beside other sensors of its room. What
// is shown is in the address, so that it can be shared and gone back to.
import { useQuery, useQueryClient } from "@tanstack/preact-query";
import { useCallback, useEffect, useId, useMemo, useRef, useState } from "preact/hooks";
import { useSearchParams } from "wouter-preact";
import { api, unwrap, type Bucket, type Sensor } from "../api/client";
import { useExcursionsOf } from "../api/excursions";
import { keys, pastEvery, useForecast, useHistory, useMaintenance, useOverview } from "../api/queries";
import { recommended } from "../logic/climate";
import { fanOf, partOf, spansOf, type Charted } from "../logic/spans";
import { decimal, inUnit, localTime, withUnit } from "../logic/format";
import { occurrences } from "../logic/maintenance";
import { limitsOf, type LiveSensor, type Overview } from "../logic/overview";
import { boundsOf, rangeOf, withRange, type Range } from "../logic/range";
import {
  columnsOf, dewColumns, extremesOf, gapOf, shifted, usualOf, valueAt, withNewest, type Columns,
} from "../logic/series";
import { Charts } from "./chunk";
import { useNow } from "./clock";
import { Comparison, earlier, mostCompared } from "./comparison";
import { RangeBar } from "./range";
import { Failure, Loading } from "./states";

/** About one point per two pixels of a wide screen. */
const points = 720;
const quantities = [
  { chart: "temperature", label: "Temperature", unit: "°C", colour: "--temperature", height: 320,
    normal: recommended.temperature },
  { chart: "humidity", label: "Humidity", unit: "%", colour: "--humidity", height: 140, normal: undefined },
  { chart: "dew_point", label: "Dew point", unit: "°C", colour: "--dew", height: 140, normal: recommended.dewPoint },
] as const;

type Curves = Record<Charted, Columns> & { /** Seconds without a reading that are a gap. */ gap: number };

/** How old the buckets may be, in seconds, before those after them are asked for. */
const refetched = pastEvery / 500;

/** The curves of a sensor's buckets and, in a range that ends now, its newest reading. */
function curvesOf(buckets: readonly Bucket[] = [], bucket: number,
  sensor: LiveSensor | undefined, live: boolean): Curves {
  const gap = gapOf(buckets, bucket, sensor?.interval_s);
  let temperature = columnsOf(buckets, "temperature", gap);
  let humidity = columnsOf(buckets, "humidity", gap);
  if (live && sensor?.timestamp) {
    const time = Date.parse(sensor.timestamp) / 1000;
    const newest = (columns: Columns, value: number | null) => {
      const last = columns.time.at(-1);
      // What is older would be a line over a gap.
      if (value === null || last === undefined || time - last >= Math.max(refetched, gap + bucket)) return columns;
      return withNewest(columns, time, value);
    };
    temperature = newest(temperature, sensor.temperature);
    humidity = newest(humidity, sensor.humidity);
  }
  return { temperature, humidity, dew_point: dewColumns(temperature, humidity), gap };
}

/** The name of a sensor beside one of a room: many a room has a Rack 1. */
function nameBeside(roomID: number, sensor: LiveSensor | undefined, overview: Overview | undefined) {
  const room = sensor?.room_id !== roomID && overview?.rooms.find(({ id }) => id === sensor?.room_id)?.name;
  return room ? `${room}, ${sensor?.name}` : sensor?.name;
}

const measured = (lines: readonly { curves: Curves }[], chart: Charted) =>
  lines.some(({ curves }) => curves[chart].mean.some((value) => value !== null));

export function HistoryPanel({ sensor }: { sensor: Sensor }) {
  const { id } = sensor;
  const [search, setSearch] = useSearchParams();
  const range = useMemo(() => rangeOf(search), [search]);
  const compared = useMemo(
    () => [...new Set((search.get("with") ?? "").split(",").filter((other) => other && other !== id))]
      .slice(0, mostCompared),
    [search, id],
  );
  const setRange = useCallback((next: Range) => setSearch((before) => withRange(before, next)), [setSearch]);
  const now = useNow(15_000);
  const live = range.period !== undefined;
  const [start, end] = boundsOf(range, now);
  const bounds = useMemo(() => [start, end] as const, [start, end]);
  const bucket = (end - start) / points / 1000;

  const { data: overview } = useOverview();
  const history = useHistory(id, start, end, points);
  const buckets = useKept(id, history.data);
  const others = Array.from({ length: mostCompared }, (_, i) => {
    const by = earlier[compared[i] ?? ""]?.by ?? 0;
    return useHistory(by > 0 ? id : compared[i], start - by, end - by, points);
  });
  const { data: excursions } = useExcursionsOf(id, bounds);
  const { data: windows } = useMaintenance();
  const { data: forecast } = useForecast(id);
  const { data: usual } = useUsual(id, start, end);

  const sensorOf = (of: string) => overview?.sensors.find((candidate) => candidate.id === of);
  const own = sensorOf(id);
  useNewExcursions(own, overview);
  const curves = useMemo(() => curvesOf(buckets, bucket, own, live),
    [buckets, bucket, live, own?.timestamp, own?.interval_s]);
  const beside = compared.map((other, i) => ({
    id: other, name: earlier[other]?.name ?? nameBeside(sensor.room_id, sensorOf(other), overview) ?? other,
    by: (earlier[other]?.by ?? 0) / 1000,
    buckets: others[i]?.data, sensor: earlier[other] ? own : sensorOf(other), error: others[i]?.error,
  }));
  // Equal parts are the same objects, so that a chart is drawn again only when there is something new.
  const signature = beside.map(({ name, buckets, sensor: of }) =>
    `${name} ${buckets?.length} ${buckets?.at(0)?.timestamp} ${of?.timestamp} ${of?.interval_s}`).join();
  const besides = useMemo(() => beside.map(({ name, by, buckets, sensor: of }) => {
    const lines = curvesOf(buckets, bucket, of, live && by === 0);
    const moved = (columns: Columns) => (by === 0 ? columns : shifted(columns, by));
    return {
      name, curves: { temperature: moved(lines.temperature), humidity: moved(lines.humidity),
        dew_point: moved(lines.dew_point), gap: lines.gap },
    };
  }), [signature, bucket, live]);
  const maintenance = useMemo(() => occurrences((windows ?? []).filter(({ room_ids, sensor_id }) =>
    sensor_id === id || room_ids.includes(sensor.room_id)), start, end)
    .map((window) => ({ start: window.start / 1000, end: window.end / 1000 })),
    [windows, id, sensor.room_id, start, end]);
  const limits = useMemo(() => (overview && own ? limitsOf(overview, own) : []),
    [JSON.stringify(overview && own && limitsOf(overview, own))]);

  const charts = useMemo(() => quantities.map((quantity) => {
    const { chart } = quantity;
    return {
      ...quantity, columns: curves[chart], excursions: spansOf(excursions ?? [], chart), maintenance,
      limits: limits.filter((limit) => limit.quantity === chart), usual: usualOf(usual ?? [], chart),
      others: besides.map(({ name, curves: of }) => ({ name, columns: of[chart] })),
      fan: live ? fanOf(excursions ?? [], chart, () => curves[chart]) : undefined,
      forecast: range.period === "1h" && chart !== "dew_point" ? (forecast?.forecast ?? []).flatMap((step) => {
        const value = step[chart];
        return value === null ? [] : [{ time: Date.parse(step.timestamp) / 1000, value }];
      }) : [],
    };
  }), [curves, excursions, maintenance, limits, besides, live, range.period, forecast, usual]);
  // What is expected must have room to be drawn.
  const last = Math.max(...charts.flatMap(({ fan, forecast: steps }) => [fan?.latest ?? 0, steps.at(-1)?.time ?? 0]));
  const until = Math.max(end / 1000, last === 0 ? 0 : last + (end - start) / 100_000);

  const key = useId();
  const [time, onTime] = useState<number | null>(null);
  const cursor = useMemo(() => ({ key, time, onTime }), [key, time]);
  const drag = useCallback(
    (from: number, to: number) => setRange({ start: Math.floor(from * 1000), end: Math.ceil(to * 1000) }), [setRange],
  );
  const lines = [{ name: sensor.name, curves }, ...besides];
  // Space is kept for the charts that will come.
  const alone = own && (own.temperature === null) !== (own.humidity === null);
  return (
    <section class="card" aria-labelledby="past">
      <h2 id="past" class="unseen">Readings</h2>
      <RangeBar sensorID={id} range={range} start={start} end={end} onChange={setRange} />
      <Comparison
        sensor={sensor} overview={overview} compared={compared}
        onChange={(chosen) => setSearch((before) => {
          const next = new URLSearchParams(before);
          if (chosen.length > 0) next.set("with", chosen.join(","));
          else next.delete("with");
          return next;
        })}
      />
      {history.error && <Failure error={history.error} retry={() => void history.refetch()} />}
      {beside.map(({ id: other, error }, i) =>
        error && <Failure key={other} error={error} retry={() => void others[i]?.refetch()} />)}
      {buckets?.length === 0 && !history.error && <p class="hint">No readings in this range.</p>}
      {(buckets ? buckets.length > 0 : !history.error)
        && <div class={alone ? "charts one" : "charts"}>{!buckets ? <Loading what="readings" /> : (
          <Charts>{(Chart) => <>
            <Readout lines={lines} time={time} start={start / 1000} end={end / 1000}
              step={Math.max(1, Math.round(bucket))} onTime={onTime} />
            {charts.filter(({ chart }) => measured(lines, chart)).map(({ chart, ...quantity }) => (
              <div key={chart}>
                <h3>{quantity.label}{chart !== "dew_point"
                  && <Extremes buckets={buckets} chart={chart} unit={quantity.unit} />}</h3>
                <Chart {...quantity} start={start / 1000} end={until} onRange={drag} cursor={cursor} />
              </div>
            ))}
            <p class="hint">
              Line: mean, with a band from lowest to highest. Shaded: recommended, and beyond a limit. Hatched:
              maintenance. Triangles and bars below: excursions.
              {" "}{charts.some((chart) => chart.usual.length > 0)
                ? "Dashed: what is usual for this sensor, hour by hour, of the last four weeks. There is none for "
                  + "humidity."
                : "What is usual is drawn once there is an hour of readings, of the last four weeks."}
              {" "}Drag across a chart for a closer look.
            </p>
          </>}</Charts>
        )}</div>}
    </section>
  );
}

/** The newest data of a sensor: while a later question fails, what is known stays. */
function useKept<T>(id: string, data: T | undefined): T | undefined {
  const kept = useRef<{ id: string; data: T }>();
  if (data !== undefined) kept.current = { id, data };
  return kept.current?.id === id ? kept.current.data : undefined;
}

/** Excursions of a sensor are asked for again when the overview tells of a change. */
function useNewExcursions(sensor: LiveSensor | undefined, overview: Overview | undefined): void {
  const queries = useQueryClient();
  const told = sensor && overview && partOf(sensor, overview.incidents);
  useEffect(() => {
    // A hidden page asks once it is looked at.
    if (told !== undefined) {
      void queries.invalidateQueries({ queryKey: keys.excursions, refetchType: document.hidden ? "none" : "active" });
    }
  }, [queries, told]);
}

/** Lowest, mean and highest of the range. */
function Extremes({ buckets, chart, unit }: {
  buckets: readonly Bucket[]; chart: "temperature" | "humidity"; unit: string;
}) {
  const found = useMemo(() => extremesOf(buckets, chart), [buckets, chart]);
  if (!found) return null;
  const shown = (value: number) => decimal(inUnit(value, unit));
  return <small> lowest {shown(found.low)} · mean {shown(found.mean)} · highest {withUnit(found.high, unit)}</small>;
}

/** The values under the cursor of the charts, which arrow keys move too. */
function Readout({ lines, time, start, end, step, onTime }: {
  lines: readonly { name: string; curves: Curves }[]; time: number | null; start: number; end: number; step: number;
  onTime: (time: number | null) => void;
}) {
  const id = useId();
  const times = quantities.flatMap(({ chart }) => lines[0]?.curves[chart].time.at(-1) ?? []);
  const newest = times.length > 0 ? Math.max(...times) : end;
  const at = time ?? newest;
  const values = lines.map(({ name, curves }) => ({
    name,
    shown: quantities.map(
      ({ chart, label, unit }) => ({ label, text: withUnit(valueAt(curves[chart], at, curves.gap), unit) }),
    ),
  }));
  const spoken = `${localTime(at * 1000)}. `
    + `${values.map(({ name, shown }) => `${name}: ${shown.map(({ label, text }) => `${label} ${text}`).join(", ")}`)
      .join(". ")}`;
  return (
    <div class="readout">
      <table>
        <thead><tr><th scope="col">
          {time === null ? "Newest" : "At the cursor"}, {localTime(at * 1000)}
        </th>{quantities.map(({ label }) => <th key={label} scope="col">{label}</th>)}</tr></thead>
        <tbody>
          {values.map(({ name, shown }, i) => (
            <tr key={name}>
              <th scope="row">
                <svg class={`swatch line${i}`} viewBox="0 0 28 8" aria-hidden="true"><path d="M0 4h28" /></svg> {name}
              </th>
              {shown.map(({ label, text }) => <td key={label}>{text}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
      <label for={id} class="unseen">Cursor of the charts</label>
      <input
        id={id} type="range" min={Math.floor(start)} max={Math.ceil(end)} step={step} value={at} aria-valuetext={spoken}
        onInput={(event) => onTime(Number(event.currentTarget.value))}
      />
    </div>
  );
}

/** Where a sensor is usual, by whole hours around a range of milliseconds. */
function useUsual(id: string, start: number, end: number) {
  const hour = 3_600_000;
  const [from, to] = [Math.floor(start / hour) * hour, Math.ceil(end / hour) * hour];
  return useQuery({
    queryKey: ["usual", id, from, to], staleTime: pastEvery, refetchInterval: pastEvery,
    placeholderData: (before, query) => (query?.queryKey[1] === id ? before : undefined),
    queryFn: () => unwrap(api.GET("/api/v1/data/usual/{sensor_id}", {
      params: { path: { sensor_id: id },
        query: { start_time: new Date(from).toISOString(), end_time: new Date(to).toISOString() } },
    })),
  });
}
