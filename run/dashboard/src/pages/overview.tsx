// Every room at a glance, worst first.
import { useQueryClient } from "@tanstack/react-query";
import { useMemo, useState } from "preact/hooks";
import { Link } from "wouter-preact";
import { api, unwrap, type Reading, type Room, type Sensor } from "../api/client";
import { keys, useActiveEpisodes, useAllSensors, useLatest, useRooms, useThresholds } from "../api/queries";
import { dewPoint } from "../logic/climate";
import { conditionOf, needsAttention, severity, type Condition } from "../logic/condition";
import { openBySensor } from "../logic/episodes";
import { ago, decimal, plural } from "../logic/format";
import { ConditionBadges } from "../components/badge";
import { useNow } from "../components/clock";
import { Dialog } from "../components/dialog";
import { Field, Form } from "../components/form";
import { Sparkline } from "../components/sparkline";
import { Empty, Failure, Loading, StatusMark } from "../components/states";
import { useTitle } from "../components/title";

interface SensorRow {
  sensor: Sensor;
  reading: Reading | undefined;
  condition: Condition;
}

export function OverviewPage() {
  useTitle("Overview");
  const now = useNow();
  const rooms = useRooms();
  const sensors = useAllSensors(rooms.data);
  const ids = useMemo(() => sensors.data?.map((sensor) => sensor.id), [sensors.data]);
  const latest = useLatest(ids);
  const alerts = useActiveEpisodes();
  const { data: limits } = useThresholds();
  const [adding, setAdding] = useState(false);

  const open = useMemo(() => openBySensor(alerts.data ?? []), [alerts.data]);

  const failed = rooms.error ?? sensors.error;
  if (failed && !sensors.data) {
    return <Failure error={failed} retry={() => { void rooms.refetch(); sensors.retry(); }} />;
  }
  if (!rooms.data || !sensors.data || (latest.isLoading && ids?.length)) return <Loading what="your rooms" />;

  const watched = sensors.data.map((sensor): SensorRow => {
    const reading = latest.data?.[sensor.id];
    return { sensor, reading, condition: conditionOf(reading, limits, open.get(sensor.id) ?? 0, now) };
  });
  const groups = rooms.data
    .map((room) => {
      const members = watched.filter(({ sensor }) => sensor.room_id === room.id).sort(worstFirst);
      return { room, members, worst: members[0] ? severity(members[0].condition) : -1 };
    })
    .sort((a, b) => b.worst - a.worst);

  return (
    <>
      <div class="heading">
        <h1>Overview</h1>
        <button type="button" onClick={() => setAdding(true)}>Add room</button>
      </div>
      {(latest.error || alerts.error) && (
        <Failure error={latest.error ?? alerts.error} retry={() => { void latest.refetch(); void alerts.refetch(); }} />
      )}
      {watched.length > 0 && <Summary watched={watched} />}
      {groups.length === 0 && (
        <Empty title="Add your first server room">
          <p>A room holds the sensors that measure in it.</p>
          <button type="button" class="primary" onClick={() => setAdding(true)}>Add room</button>
        </Empty>
      )}
      {groups.map((group) => <RoomGroup key={group.room.id} {...group} now={now} />)}
      {adding && <AddRoom onClose={() => setAdding(false)} />}
    </>
  );
}

/** The sort is stable: equal rooms stay in the order of names. */
function worstFirst(a: SensorRow, b: SensorRow): number {
  return severity(b.condition) - severity(a.condition) || b.condition.alerts - a.condition.alerts;
}

/** The answer to "is everything all right?". */
function Summary({ watched }: { watched: SensorRow[] }) {
  const attention = watched.filter(({ condition }) => needsAttention(condition)).length;
  const of = (freshness: string) => watched.filter(({ condition }) => condition.freshness === freshness).length;
  return (
    <section class={`summary ${attention > 0 ? "bad" : "good"}`} aria-live="polite">
      <p class="overall">
        <StatusMark kind={attention > 0 ? "alert" : "ok"} />
        {attention > 0 ? `${plural(attention, "sensor")} need${attention === 1 ? "s" : ""} attention` : "All quiet"}
      </p>
      <dl>
        {(["online", "late", "offline", "waiting"] as const).map((name) => (
          <div key={name}><dt>{name}</dt><dd>{of(name)}</dd></div>
        ))}
      </dl>
    </section>
  );
}

function RoomGroup({ room, members, now }: { room: Room; members: SensorRow[]; now: number }) {
  return (
    <section class="room" aria-labelledby={`room-${room.id}`}>
      <h2 id={`room-${room.id}`}><Link href={`/rooms/${room.id}`}>{room.name}</Link> <small>{plural(members.length, "sensor")}</small></h2>
      {members.length === 0 && <p class="hint">No sensor here yet. <Link href={`/rooms/${room.id}`}>Add one to this room</Link>.</p>}
      <ul class="tiles">
        {members.map((member) => <li key={member.sensor.id}><SensorTile {...member} now={now} /></li>)}
      </ul>
    </section>
  );
}

export function SensorTile({ sensor, reading, condition, now }: SensorRow & { now: number }) {
  return (
    <article class={`tile severity-${severity(condition)}`}>
      <div class="tile-head">
        <h3><Link href={`/sensors/${encodeURIComponent(sensor.id)}`} class="cover">{sensor.name}</Link></h3>
        <ConditionBadges condition={condition} />
      </div>
      {reading ? (
        <>
          <dl class={`figures ${condition.freshness}`}>
            <div class={condition.tooHot ? "over" : ""}><dt>Temperature</dt><dd>{decimal(reading.temperature)}<small> °C</small></dd></div>
            <div class={condition.tooHumid ? "over" : ""}><dt>Humidity</dt><dd>{decimal(reading.humidity)}<small> %</small></dd></div>
            <div><dt>Dew point</dt><dd>{decimal(dewPoint(reading.temperature, reading.humidity))}<small> °C</small></dd></div>
          </dl>
          <div class="tile-foot"><Sparkline sensorID={sensor.id} /><span>{ago(Date.parse(reading.timestamp), now)}</span></div>
        </>
      ) : (
        <p class="hint">Check that the node sends the id <code>{sensor.id}</code> and reaches the gateway.</p>
      )}
    </article>
  );
}

function AddRoom({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const queries = useQueryClient();
  return (
    <Dialog title="Add room" onClose={onClose}>
      <Form
        action="Add room" onCancel={onClose}
        onSubmit={async () => {
          await unwrap(api.POST("/api/v1/server_rooms/new_room", { body: { name } }));
          await queries.invalidateQueries({ queryKey: keys.rooms });
          onClose();
        }}
      >
        <Field label="Name" name="name" value={name} onInput={setName} maxLength={120} autoFocus />
      </Form>
    </Dialog>
  );
}
