// The sensors of a room as a table, sorted by whichever column is pressed.
import { useEffect, useMemo, useState } from "preact/hooks";
import { Link } from "wouter-preact";
import { dewPoint } from "../logic/climate";
import { ago, decimal, withUnit } from "../logic/format";
import { beyond, contactOf, limitsOf, type LiveSensor, type Overview } from "../logic/overview";
import { StateBadge } from "./badge";
import { useNow } from "./clock";
import { memo } from "./memo";
import { Sparkline } from "./sparkline";

const order = ["critical", "silent", "warning", "late", "unreported", "ok"];
const dewOf = ({ temperature, humidity }: LiveSensor) =>
  (temperature === null || humidity === null ? null : dewPoint(temperature, humidity));

/** A column by its name, and what it is sorted by. Names are in order already. */
const columns = [
  ["Sensor", null],
  ["State", (sensor: LiveSensor) => -order.indexOf(sensor.state)],
  ["Temperature", ({ temperature }: LiveSensor) => temperature],
  ["Humidity", ({ humidity }: LiveSensor) => humidity],
  ["Dew point", dewOf],
  ["Last reading", ({ timestamp }: LiveSensor) => (timestamp === null ? null : Date.parse(timestamp))],
] as const;

/** So many rows are drawn at once: 200 would hold up a press. The rest follows, some in each frame. */
const [atOnce, inFrame] = [60, 10];

export function SensorTable({ sensors, overview, stale }: {
  sensors: readonly LiveSensor[]; overview: Overview; stale: boolean;
}) {
  const now = useNow();
  const [sorted, setSorted] = useState({ column: 0, down: false });
  const [drawn, setDrawn] = useState(atOnce);
  const more = drawn > atOnce && drawn < sensors.length;
  useEffect(() => {
    if (!more) return;
    const frame = requestAnimationFrame(() => setDrawn(drawn + inFrame));
    return () => cancelAnimationFrame(frame);
  }, [more, drawn]);
  const rows = useMemo(() => {
    const by = columns[sorted.column]?.[1];
    const list = by ? sensors.toSorted((a, b) => (by(b) ?? -Infinity) - (by(a) ?? -Infinity)) : [...sensors];
    return sorted.down ? list.reverse() : list;
  }, [sensors, sorted]);
  const shown = rows.slice(0, drawn);
  return (
    <div class={`card scroll${stale ? " stale" : ""}`} tabIndex={0} role="group" aria-label="Sensors">
      <table class="sensors">
        <thead>
          <tr>
            {columns.map(([name], i) => (
              <th key={name} scope="col"
                aria-sort={sorted.column !== i ? undefined : (i === 0) === sorted.down ? "descending" : "ascending"}>
                <button type="button" class="link"
                  onClick={() => setSorted({ column: i, down: sorted.column === i && !sorted.down })}>{name}</button>
              </th>
            ))}
            <th scope="col">Last day</th>
          </tr>
        </thead>
        <tbody>{shown.map((sensor) => <Row key={sensor.id} sensor={sensor} overview={overview} now={now} />)}</tbody>
      </table>
      {drawn === atOnce && rows.length > atOnce
        && <button type="button" onClick={() => setDrawn(atOnce + inFrame)}>Show all {rows.length} sensors</button>}
    </div>
  );
}

const Row = memo(function Row({ sensor, overview, now }: { sensor: LiveSensor; overview: Overview; now: number }) {
  const limits = limitsOf(overview, sensor);
  const old = !sensor.reports;
  const over = (quantity: "temperature" | "humidity" | "dew_point", value: number | null) =>
    (!old && beyond(limits, quantity, value) ? "over" : undefined);
  const { temperature, humidity, timestamp } = sensor;
  const dew = dewOf(sensor);
  return (
    <tr>
      <th scope="row" class="wraps"><Link href={`/sensors/${encodeURIComponent(sensor.id)}`}>{sensor.name}</Link></th>
      <td><StateBadge state={sensor.state} /></td>
      {timestamp === null
        ? <td colSpan={5} class="hint wraps">
          Check that the node sends the id <code>{sensor.id}</code> and reaches the gateway.
        </td>
        : <>
          <td class={over("temperature", temperature)}>{withUnit(temperature)}</td>
          <td class={over("humidity", humidity)}>{humidity === null ? "–" : `${decimal(humidity)} %`}</td>
          <td class={over("dew_point", dew)}>{withUnit(dew)}</td>
          <td>{contactOf(timestamp, now)}, {ago(Date.parse(timestamp), now)}</td>
          <td><Sparkline line={sensor.sparkline} start={overview.sparkline_start} /></td>
        </>}
    </tr>
  );
});
