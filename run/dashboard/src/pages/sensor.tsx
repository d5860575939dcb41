// One sensor: its latest reading, its history beside others, and the forecast.
import { useQueryClient } from "@tanstack/preact-query";
import { useState } from "preact/hooks";
import { Link, useLocation } from "wouter-preact";
import { api, unwrap, ApiError, type Sensor } from "../api/client";
import { useExcursions } from "../api/excursions";
import { keys, refresh, useForecast, useOverview, useRooms, useSensor } from "../api/queries";
import { ago, both } from "../logic/format";
import { rateOf, titleOf } from "../logic/incidents";
import { contactOf } from "../logic/overview";
import { incidentOf } from "../logic/spans";
import { StateBadge } from "../components/badge";
import { Calibration } from "../components/calibration";
import { useNow } from "../components/clock";
import { ContactNotice, useLostContact } from "../components/contact";
import { Confirm, Dialog } from "../components/dialog";
import { Excursions } from "../components/excursions";
import { Field, Form, Select } from "../components/form";
import { HistoryPanel } from "../components/history";
import { Holder } from "../components/incidents";
import { JudgedInPart } from "../components/judgedinpart";
import { May } from "../components/may";
import { Timestamp } from "../components/timestamp";
import { Empty, Failure, Loading } from "../components/states";
import { SensorFigures } from "../components/tile";
import { useTitle } from "../components/title";

export default function SensorPage({ id }: { id: string }) {
  const sensor = useSensor(id);
  const rooms = useRooms();
  const overview = useOverview();
  useTitle(sensor.data?.name ?? id);
  const [open, setOpen] = useState<"edit" | "delete" | null>(null);
  if (sensor.error instanceof ApiError && sensor.error.status === 404) {
    return <><h1>Sensor not found</h1><p><Link href="/rooms">Go to the rooms</Link></p></>;
  }
  if (!sensor.data && sensor.error) return <Failure error={sensor.error} retry={() => void sensor.refetch()} />;
  // At once with the overview, where that comes: one part after the other would move what is read already.
  if (!sensor.data || (!overview.data && !overview.error)) return <Loading what="the sensor" />;
  const room = rooms.data?.find((candidate) => candidate.id === sensor.data.room_id);
  const { position, type, also_unenrolled: elsewhere } = sensor.data;
  return (
    <>
      <nav class="crumbs" aria-label="Where you are">
        <Link href="/rooms">Rooms</Link>{room && <> / <Link href={`/rooms/${room.id}`}>{room.name}</Link></>}
      </nav>
      <div class="heading">
        <h1>{sensor.data.name}</h1>
        <span class="hint"><code>{id}</code> · {type}{position && ` · ${position}`}</span>
        <May role="admin">
          <button type="button" onClick={() => setOpen("edit")}>Rename or move</button>
          <button type="button" onClick={() => setOpen("delete")}>Delete</button>
        </May>
      </div>
      <Strip id={id} />
      <HistoryPanel sensor={sensor.data} />
      {elsewhere && <p class="hint">
        Readings of this id also come through a gateway that is not enrolled. They are not shown here.
      </p>}
      <Excursions of={{ sensor_id: id }} />
      <Calibration sensor={sensor.data} />
      {open === "edit" && <EditSensor sensor={sensor.data} onClose={() => setOpen(null)} />}
      {open === "delete" && <DeleteSensor sensor={sensor.data} onClose={() => setOpen(null)} />}
    </>
  );
}

/** How it is now, in one line: values, direction, state, who has it. */
function Strip({ id }: { id: string }) {
  const now = useNow();
  const { data, error, refetch } = useOverview();
  const lost = useLostContact();
  const { data: forecast } = useForecast(id);
  const { data: excursions } = useExcursions({ sensor_id: id }, false);
  if (!data) return error ? <Failure error={error} retry={() => void refetch()} />
    : <Loading what="the latest reading" />;
  const sensor = data.sensors.find((candidate) => candidate.id === id);
  if (!sensor?.timestamp) {
    return (
      <Empty title="Waiting for a reading">
        <p>
          Nothing has come from <code>{id}</code> since it was added here. Check that the node is powered, on the
          network of the gateway, and sends exactly this id.
        </p>
      </Empty>
    );
  }
  const contact = contactOf(sensor.timestamp, now);
  const next = !sensor.reports || lost !== null ? undefined
    : forecast?.forecast.at(-1);
  const incident = incidentOf(id, excursions?.pages.flatMap(({ items }) => items) ?? [], data.incidents);
  const rate = incident?.worst.sensor_id === id
    && incident.now ? rateOf(incident.worst.quantity, incident.now.rate) : null;
  return (
    <>
      <ContactNotice />
      <section class={`card present${lost === null ? "" : " stale"}`} aria-label="Now">
        <SensorFigures sensor={sensor} overview={data} large />
        <div class={incident?.severity}>
          <p class="badges"><StateBadge state={sensor.state} />{rate && <span class="badge">{rate}</span>}</p>
          {incident && <p><Link href={`/incidents/${incident.id}`}>{titleOf(incident)}</Link></p>}
          {incident && <Holder incident={incident} now={now} />}
        </div>
        <p class="hint">
          {contact}. Measured {ago(Date.parse(sensor.timestamp), now)}, <Timestamp at={sensor.timestamp} />.{" "}
          {next && <>Forecast for {next.ahead_s} s later: {both(next)}.</>}
        </p>
        <JudgedInPart sensor={sensor} />
      </section>
    </>
  );
}

function EditSensor({ sensor, onClose }: { sensor: Sensor; onClose: () => void }) {
  const rooms = useRooms();
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
          await refresh(["sensor", sensor.id], keys.live);
          onClose();
        }}
      >
        <Field label="Name" name="name" value={name} onInput={setName} maxLength={80} autoFocus />
        <Field label="Type" name="type" value={type} onInput={setType} maxLength={50} />
        <Select label="Room" value={roomID} onChange={setRoomID}
          options={rooms.data?.map((room) => [room.id, room.name] as const) ?? []} />
      </Form>
    </Dialog>
  );
}

function DeleteSensor({ sensor, onClose }: { sensor: Sensor; onClose: () => void }) {
  const [, go] = useLocation();
  const queries = useQueryClient();
  const remove = async () => {
    await unwrap(
      api.DELETE("/api/v1/sensors/delete_sensor/{sensor_id}", { params: { path: { sensor_id: sensor.id } } }),
    );
    go(`/rooms/${sensor.room_id}`);
    queries.removeQueries({ queryKey: ["sensor", sensor.id] });
    await refresh(keys.live);
  };
  return (
    <Confirm title={`Delete ${sensor.name}?`} action="Delete sensor" onConfirm={remove} onClose={onClose}>
      <p>The sensor is deleted. Readings already stored are kept.</p>
      <p>New readings from <code>{sensor.id}</code> are ignored until it is added again.</p>
    </Confirm>
  );
}
