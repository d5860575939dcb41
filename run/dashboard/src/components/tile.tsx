// One sensor in a box: its newest reading and its day.
import { useMemo } from "preact/hooks";
import { Link } from "wouter-preact";
import { dewPoint } from "../logic/climate";
import { ago, decimal, inUnit, unitName } from "../logic/format";
import { beyond, limitsOf, type LiveSensor, type Overview } from "../logic/overview";
import { StateBadge } from "./badge";
import { Sparkline } from "./sparkline";
import { useTurn } from "./turns";

const degrees = (value: number | null) => decimal(value === null ? null : inUnit(value, "°C"));

export function SensorFigures({ sensor, overview, large }: { sensor: LiveSensor; overview: Overview; large?: boolean }) {
  const { temperature, humidity } = sensor;
  const limits = limitsOf(overview, sensor);
  const old = sensor.state === "silent" || sensor.state === "late";
  const over = (quantity: "temperature" | "humidity" | "dew_point", value: number | null) => (!old && beyond(limits, quantity, value) ? "over" : "");
  const dew = temperature === null || humidity === null ? null : dewPoint(temperature, humidity);
  const shown = [
    { name: "temperature", label: "Temperature", value: temperature, text: degrees(temperature), unit: unitName("°C") },
    { name: "humidity", label: "Humidity", value: humidity, text: decimal(humidity), unit: "%" },
    { name: "dew_point", label: "Dew point", value: dew, text: degrees(dew), unit: unitName("°C") },
  ] as const;
  return (
    <dl class={`figures ${large ? "large" : ""} ${old ? "old" : ""}`}>
      {shown.filter(({ value }) => value !== null).map(({ name, label, value, text, unit }) => (
        <div key={name} class={over(name, value)}><dt>{label}</dt><dd>{text}<small> {unit}</small></dd></div>
      ))}
    </dl>
  );
}

function SensorTile({ sensor, overview, now }: { sensor: LiveSensor; overview: Overview; now: number }) {
  return (
    <article class={`tile ${sensor.state}`}>
      <div class="tile-head">
        <h3><Link href={`/sensors/${encodeURIComponent(sensor.id)}`} class="cover">{sensor.name}</Link></h3>
        <StateBadge state={sensor.state} />
      </div>
      {sensor.timestamp ? (
        <>
          <SensorFigures sensor={sensor} overview={overview} />
          <div class="tile-foot"><Sparkline line={sensor.sparkline} start={overview.sparkline_start} /><span>{ago(Date.parse(sensor.timestamp), now)}</span></div>
        </>
      ) : (
        <p class="hint">Check that the node sends the id <code>{sensor.id}</code> and reaches the gateway.</p>
      )}
    </article>
  );
}

interface TilesProps { sensors: readonly LiveSensor[]; overview: Overview; now: number }

/** So many tiles are drawn at once: 200 would hold up a press for longer than 200 ms. */
const atOnce = 40;

export function SensorTiles({ sensors, ...rest }: TilesProps) {
  const firsts = Array.from({ length: Math.ceil(sensors.length / atOnce) }, (_, i) => i * atOnce);
  return <>{firsts.map((first) => <Some key={first} first={first} sensors={sensors} {...rest} />)}</>;
}

function Some({ first, sensors, overview, now }: TilesProps & { first: number }) {
  const turn = useTurn(useMemo(() => ({ sensors: sensors.slice(first, first + atOnce), overview, now }), [sensors, first, overview, now]));
  return <>{turn?.sensors.map((sensor) => <li key={sensor.id}><SensorTile sensor={sensor} overview={turn.overview} now={turn.now} /></li>)}</>;
}
