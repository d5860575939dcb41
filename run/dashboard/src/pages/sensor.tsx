// One sensor: its latest reading, its history, and the forecast.
import { useQueryClient } from "@tanstack/react-query";
import { useMemo, useState } from "preact/hooks";
import { Link, useLocation } from "wouter-preact";
import { api, unwrap, ApiError, type Sensor } from "../api/client";
import { keys, useActiveEpisodes, useEpisodesOf, useForecast, useHistory, useLatest, useRooms, useSensor, useStats, useThresholds } from "../api/queries";
import { dewPoint } from "../logic/climate";
import { conditionOf } from "../logic/condition";
import { openBySensor, intervalsOver } from "../logic/episodes";
import { ago, count, decimal } from "../logic/format";
import { columnsOf } from "../logic/series";
import { ConditionBadges } from "../components/badge";
import { useNow } from "../components/clock";
import { Charts } from "../components/chunk";
import { useDeletion } from "../components/deletion";
import { Confirm, Dialog } from "../components/dialog";
import { EpisodeTable } from "../components/episodes";
import { Field, Form } from "../components/form";
import { Timestamp } from "../components/timestamp";
import { RangeBar, type Range } from "../components/range";
import { Empty, Failure, Loading } from "../components/states";
import { useTitle } from "../components/title";

/** About one point per two pixels of a wide screen. */
const points = 720;

export default function SensorPage({ id }: { id: string }) {
  const sensor = useSensor(id);
  const rooms = useRooms();
  useTitle(sensor.data?.name ?? id);
  const [open, setOpen] = useState<"edit" | "delete" | null>(null);
  if (sensor.error instanceof ApiError && sensor.error.status === 404) {
    return <Empty title="Sensor not found"><p><Link href="/">Go to the overview</Link></p></Empty>;
  }
  if (sensor.error) return <Failure error={sensor.error} retry={() => void sensor.refetch()} />;
  if (!sensor.data) return <Loading what="the sensor" />;
  const room = rooms.data?.find((candidate) => candidate.id === sensor.data.room_id);
  return (
    <>
      <nav class="crumbs" aria-label="Where you are">
        <Link href="/">Overview</Link>{room && <> / <Link href={`/rooms/${room.id}`}>{room.name}</Link></>}
      </nav>
      <div class="heading">
        <h1>{sensor.data.name}</h1>
        <button type="button" onClick={() => setOpen("edit")}>Rename or move</button>
        <button type="button" onClick={() => setOpen("delete")}>Delete</button>
      </div>
      <p class="hint"><code>{id}</code> · {sensor.data.type}{sensor.data.position && ` · ${sensor.data.position}`}</p>
      <LatestPanel id={id} />
      <HistoryPanel id={id} />
      <Statistics id={id} />
      <SensorAlerts id={id} />
      {open === "edit" && <EditSensor sensor={sensor.data} onClose={() => setOpen(null)} />}
      {open === "delete" && <DeleteSensor sensor={sensor.data} onClose={() => setOpen(null)} />}
    </>
  );
}

function LatestPanel({ id }: { id: string }) {
  const now = useNow();
  const ids = useMemo(() => [id], [id]);
  const latest = useLatest(ids);
  const { data: episodes } = useActiveEpisodes();
  const { data: limits } = useThresholds();
  const { data: forecast } = useForecast(id);
  if (latest.error) return <Failure error={latest.error} retry={() => void latest.refetch()} />;
  if (!latest.data) return <Loading what="the latest reading" />;
  const reading = latest.data[id];
  if (!reading) {
    return (
      <Empty title="Waiting for the first reading">
        <p>Nothing has come from <code>{id}</code> yet. Check that the node is powered, on the network of the gateway, and sends exactly this id.</p>
      </Empty>
    );
  }
  const condition = conditionOf(reading, limits, openBySensor(episodes ?? []).get(id) ?? 0, now);
  const next = condition.freshness === "online" ? forecast?.forecast.at(-1) : undefined;
  return (
    <section class="card present" aria-label="Now">
      <ConditionBadges condition={condition} />
      <dl class={`figures large ${condition.freshness}`}>
        <div class={condition.tooHot ? "over" : ""}><dt>Temperature</dt><dd>{decimal(reading.temperature)}<small> °C</small></dd></div>
        <div class={condition.tooHumid ? "over" : ""}><dt>Humidity</dt><dd>{decimal(reading.humidity)}<small> %</small></dd></div>
        <div><dt>Dew point</dt><dd>{decimal(dewPoint(reading.temperature, reading.humidity))}<small> °C</small></dd></div>
      </dl>
      <p class="hint">
        Measured {ago(Date.parse(reading.timestamp), now)}, <Timestamp at={reading.timestamp} />.{" "}
        {next && <>Forecast for {next.seconds_ahead} s later: {decimal(next.temperature)} °C, {decimal(next.humidity)} %.</>}
      </p>
    </section>
  );
}

function HistoryPanel({ id }: { id: string }) {
  const [range, setRange] = useState<Range>({ period: "24h" });
  // A period ends now, rounded to half a minute, so that the answer is cached that long.
  const now = useNow(30_000);
  const bounds = useMemo(() => boundsOf(range, now), [range, now]);
  const [start, end] = bounds;
  const history = useHistory(id, start, end, points);
  const { data: episodes } = useEpisodesOf(id, bounds);
  const { data: limits } = useThresholds();
  const { data: forecast } = useForecast(id);
  const bucket = (end - start) / points / 1000;
  const temperature = useMemo(() => columnsOf(history.data ?? [], "temperature", bucket), [history.data, bucket]);
  const humidity = useMemo(() => columnsOf(history.data ?? [], "humidity", bucket), [history.data, bucket]);
  const over = useMemo(() => ({
    temperature: intervalsOver(episodes ?? [], "temperature"), humidity: intervalsOver(episodes ?? [], "humidity"),
  }), [episodes]);
  const ahead = useMemo(() => {
    const steps = range.period === "1h" ? (forecast?.forecast ?? []) : [];
    const of = (quantity: "temperature" | "humidity") => steps.map((step) => ({ time: Date.parse(step.timestamp) / 1000, value: step[quantity] }));
    return { temperature: of("temperature"), humidity: of("humidity") };
  }, [forecast, range.period]);
  const drag = (from: number, to: number) => setRange({ start: Math.floor(from * 1000), end: Math.ceil(to * 1000) });
  const last = ahead.temperature.at(-1)?.time;
  const shared = { start: start / 1000, end: Math.max(end / 1000, last === undefined ? 0 : last + 5), onRange: drag };

  return (
    <section class="card" aria-labelledby="past">
      <h2 id="past">Readings</h2>
      <RangeBar sensorID={id} range={range} start={start} end={end} onChange={setRange} />
      {history.error && <Failure error={history.error} retry={() => void history.refetch()} />}
      {!history.data && !history.error && <Loading what="readings" />}
      {history.data?.length === 0 && <p class="hint">No readings in this range.</p>}
      {history.data && history.data.length > 0 && (
        <Charts>{(Chart) => <>
          <h3>Temperature</h3>
          <Chart {...shared} label="Temperature" unit="°C" colour="--temperature" columns={temperature} limit={limits?.max_temperature} alerts={over.temperature} forecast={ahead.temperature} />
          <h3>Humidity</h3>
          <Chart {...shared} label="Humidity" unit="%" colour="--humidity" columns={humidity} limit={limits?.max_humidity} alerts={over.humidity} forecast={ahead.humidity} />
          <p class="hint">
            Line: mean; band: lowest to highest; triangles and bars below: episodes of alerts. Drag across a chart for a closer look.
          </p>
        </>}</Charts>
      )}
    </section>
  );
}

const lengths = { "1h": 3600_000, "24h": 86_400_000, "7d": 7 * 86_400_000, "30d": 30 * 86_400_000 };

function boundsOf(range: Range, now: number): [number, number] {
  if ("start" in range) return [range.start, range.end];
  const end = Math.ceil(now / 30_000) * 30_000;
  return [end - lengths[range.period], end];
}

function Statistics({ id }: { id: string }) {
  const { data, error, refetch } = useStats(id);
  if (error) return <Failure error={error} retry={() => void refetch()} />;
  if (!data) return <Loading what="statistics" />;
  return (
    <section class="card" aria-labelledby="statistics">
      <h2 id="statistics">Statistics</h2>
      <div class="scroll" tabIndex={0} role="group" aria-label="Statistics by period">
        <table>
          <thead>
            <tr><th scope="col">Last</th><th scope="col">Readings</th><th scope="col">Temperature °C<br /><small>min · mean · max</small></th><th scope="col">Humidity %<br /><small>min · mean · max</small></th></tr>
          </thead>
          <tbody>
            {(["1h", "24h", "7d", "30d"] as const).map((period) => {
              const stats = data[period];
              return stats && (
                <tr key={period}>
                  <th scope="row">{period}</th><td>{count(stats.count)}</td>
                  <td>{decimal(stats.min_temperature)} · <strong>{decimal(stats.avg_temperature)}</strong> · {decimal(stats.max_temperature)}</td>
                  <td>{decimal(stats.min_humidity)} · <strong>{decimal(stats.avg_humidity)}</strong> · {decimal(stats.max_humidity)}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function SensorAlerts({ id }: { id: string }) {
  const { data: episodes, error, refetch } = useEpisodesOf(id);
  if (error) return <Failure error={error} retry={() => void refetch()} />;
  return (
    <section class="card" aria-labelledby="sensor-alerts">
      <h2 id="sensor-alerts">Alerts</h2>
      {episodes?.length === 0 && <p class="hint">None so far.</p>}
      {episodes && <EpisodeTable episodes={episodes} />}
    </section>
  );
}

function EditSensor({ sensor, onClose }: { sensor: Sensor; onClose: () => void }) {
  const rooms = useRooms();
  const queries = useQueryClient();
  const [name, setName] = useState(sensor.name);
  const [type, setType] = useState(sensor.type);
  const [roomID, setRoomID] = useState(sensor.room_id);
  return (
    <Dialog title="Rename or move sensor" onClose={onClose}>
      <Form
        action="Save" onCancel={onClose}
        onSubmit={async () => {
          await unwrap(api.PUT("/api/v1/sensors/update_sensor/{sensor_id}", {
            params: { path: { sensor_id: sensor.id } }, body: { name, type, room_id: roomID },
          }));
          await Promise.all([
            queries.invalidateQueries({ queryKey: ["sensor", sensor.id] }),
            queries.invalidateQueries({ queryKey: keys.sensors(sensor.room_id) }),
            queries.invalidateQueries({ queryKey: keys.sensors(roomID) }),
          ]);
          onClose();
        }}
      >
        <Field label="Name" name="name" value={name} onInput={setName} maxLength={80} autoFocus />
        <Field label="Type" name="type" value={type} onInput={setType} maxLength={50} />
        <div class="field">
          <label for="sensor-room">Room</label>
          <select id="sensor-room" value={roomID} onChange={(event) => setRoomID(Number(event.currentTarget.value))}>
            {rooms.data?.map((room) => <option key={room.id} value={room.id}>{room.name}</option>)}
          </select>
        </div>
      </Form>
    </Dialog>
  );
}

function DeleteSensor({ sensor, onClose }: { sensor: Sensor; onClose: () => void }) {
  const [, go] = useLocation();
  const queries = useQueryClient();
  const deletion = useDeletion(async () => {
    await unwrap(api.DELETE("/api/v1/sensors/delete_sensor/{sensor_id}", { params: { path: { sensor_id: sensor.id } } }));
    go(`/rooms/${sensor.room_id}`);
    queries.removeQueries({ queryKey: ["sensor", sensor.id] });
    await queries.invalidateQueries({ queryKey: keys.sensors(sensor.room_id) });
  });
  return (
    <Confirm title={`Delete ${sensor.name}?`} action="Delete sensor" busy={deletion.busy} onConfirm={deletion.run} onClose={onClose}>
      <p>The sensor is deleted. Readings already stored are kept.</p>
      <p>New readings from <code>{sensor.id}</code> are ignored until it is added again.</p>
      {deletion.errorText}
    </Confirm>
  );
}
