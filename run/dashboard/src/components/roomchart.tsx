// All sensors of a room in one chart of a quantity, the one with the worst value drawn on top.
import { useQueries } from "@tanstack/preact-query";
import { useMemo, useState } from "preact/hooks";
import { Link } from "wouter-preact";
import type { Bucket } from "../api/client";
import { history, pastEvery } from "../api/queries";
import { ago, withUnit } from "../logic/format";
import type { Excursion } from "../logic/excursions";
import { fanOf } from "../logic/spans";
import { limitsOf, type LiveSensor, type Overview } from "../logic/overview";
import { askedOf, lengths, type Period } from "../logic/range";
import { columnsOf, gapOf, withNewest, type Columns } from "../logic/series";
import { Charts } from "./chunk";
import { useNow } from "./clock";
import { Failure, Loading } from "./states";

/** More lines than these nobody can tell apart; each is a request. */
const most = 24;
const points = 120;
const periods: readonly Period[] = ["1h", "6h", "24h"];

export type Shown = "temperature" | "humidity";

const shownAs = {
  temperature: { label: "Temperature", unit: "°C", colour: "--temperature", above: "hottest", below: "coldest" },
  humidity: { label: "Humidity", unit: "%", colour: "--humidity", above: "most humid", below: "driest" },
} as const;

function lineOf(sensor: LiveSensor, quantity: Shown, data: Bucket[] = [], bucket: number): Columns {
  const columns = columnsOf(data, quantity, gapOf(data, bucket, sensor.interval_s));
  const live = sensor.reports && columns.time.length > 0;
  const value = sensor[quantity];
  return live && value !== null ? withNewest(columns, Date.parse(sensor.timestamp ?? "") / 1000, value) : columns;
}

/** Side is where its worst value is. Lacks: what is not drawn of the excursions. */
export function RoomChart({ sensors, overview, excursions = [], lacks, quantity = "temperature", side = "above" }: {
  sensors: readonly LiveSensor[]; overview: Overview; excursions?: readonly Excursion[]; lacks?: string | false;
  quantity?: Shown; side?: "above" | "below";
}) {
  const { label, unit, colour, [side]: worstOnes } = shownAs[quantity];
  const [period, setPeriod] = useState<Period>("1h");
  const now = useNow(60_000);
  const [start, end] = askedOf(lengths[period], now);
  // Their order is kept while it is looked at: the worst of the beginning.
  const drawn = sensors.filter((sensor) => sensor.timestamp !== null && sensor[quantity] !== null);
  const shown = useMemo(
    () => drawn.toSorted((a, b) => ((b[quantity] ?? 0) - (a[quantity] ?? 0)) * (side === "above" ? 1 : -1))
      .slice(0, most).map(({ id }) => id),
    [quantity, side, drawn.map(({ id }) => id).join("\n")],
  );
  const answers = useQueries({ queries: shown.map((id) => ({
    queryKey: ["history", id, start, end, points], staleTime: pastEvery,
    queryFn: ({ signal }: { signal: AbortSignal }) => history(id, start, end, points, signal),
  })) });
  // What is known of a sensor stays while its readings are asked for anew, and when that fails.
  const kept = useMemo(() => new Map<string, Bucket[]>(), [period]);
  for (const [i, id] of shown.entries()) if (answers[i]?.data) kept.set(id, answers[i].data);
  const bucket = (end - start) / points / 1000;
  const known = new Map(sensors.map((sensor) => [sensor.id, sensor]));
  const lines = shown.flatMap((id) => {
    const sensor = known.get(id);
    return sensor ? [{ sensor, columns: lineOf(sensor, quantity, kept.get(id), bucket) }] : [];
  });
  const [worst, ...others] = lines;
  const failed = answers.find(({ error }) => error !== null);
  const limits = useMemo(() =>
    (worst ? limitsOf(overview, worst.sensor).filter((limit) => limit.quantity === quantity) : []),
    [overview, worst?.sensor.limits, quantity]);
  if (!worst) return null;
  const fan = fanOf(excursions, quantity, (id) => lines.find(({ sensor }) => sensor.id === id)?.columns);
  return (
    <section class="card" aria-label={`${label} of the room`}>
      <div class="heading">
        <h2>{label}, {lines.length < sensors.length ? `the ${lines.length} ${worstOnes} of ${sensors.length} sensors`
          : "all sensors"}</h2>
        <div class="segments small" role="group" aria-label="Period">
          {periods.map((one) => (
            <button key={one} type="button" aria-pressed={period === one} onClick={() => setPeriod(one)}>{one}</button>
          ))}
        </div>
      </div>
      {failed && <Failure error={failed.error} retry={() => void failed.refetch()} />}
      <div class="charts one">
        {answers.some(({ isPending }, i) => isPending && !kept.has(shown[i] ?? "")) ? <Loading what="readings" /> : (
          <Charts>{(Chart) => (
            <Chart
              label={label} unit={unit} colour={colour} columns={worst.columns}
              limits={limits} fan={fan} crowd
              others={others.map(({ sensor, columns }) => ({ name: sensor.name, columns }))}
              start={(now - lengths[period]) / 1000} end={Math.max(now / 1000, fan ? fan.latest + bucket : 0)}
            />
          )}</Charts>
        )}
      </div>
      <p class="hint">
        On top: <Link
          href={`/sensors/${encodeURIComponent(worst.sensor.id)}`}
        >{worst.sensor.name}</Link>, {withUnit(worst.sensor[quantity], unit)}
        {!worst.sensor.reports && worst.sensor.timestamp
          && `, ${ago(Date.parse(worst.sensor.timestamp), now)}`}.{lacks && ` ${lacks}`}
      </p>
    </section>
  );
}
