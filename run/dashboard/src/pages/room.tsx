// One room: its sensors, with forms to change and delete it.
import { useQueryClient } from "@tanstack/react-query";
import { useMemo, useState } from "preact/hooks";
import { Link, useLocation } from "wouter-preact";
import { api, unwrap, type DiscoveredNode, type Room } from "../api/client";
import { keys, useActiveEpisodes, useDiscovered, useLatest, useRooms, useSensors, useThresholds } from "../api/queries";
import { conditionOf, severity } from "../logic/condition";
import { openBySensor } from "../logic/episodes";
import { ago, decimal, plural } from "../logic/format";
import { sensorIDError } from "../logic/validation";
import { useNow } from "../components/clock";
import { Confirm, Dialog } from "../components/dialog";
import { Field, Form } from "../components/form";
import { Empty, Failure, Loading } from "../components/states";
import { useTitle } from "../components/title";
import { useDeletion } from "../components/deletion";
import { SensorTile } from "./overview";

export default function RoomPage({ id }: { id: number }) {
  const now = useNow();
  const rooms = useRooms();
  const sensors = useSensors(id);
  const ids = useMemo(() => sensors.data?.map((sensor) => sensor.id), [sensors.data]);
  const latest = useLatest(ids);
  const { data: episodes } = useActiveEpisodes();
  const { data: limits } = useThresholds();
  const [open, setOpen] = useState<"add" | "rename" | "delete" | null>(null);
  const room = rooms.data?.find((candidate) => candidate.id === id);
  useTitle(room?.name ?? "Room");
  const close = () => setOpen(null);

  if (rooms.data && !room) return <Empty title="Room not found"><p><Link href="/">Go to the overview</Link></p></Empty>;
  if (rooms.error ?? sensors.error) {
    return <Failure error={rooms.error ?? sensors.error} retry={() => { void rooms.refetch(); void sensors.refetch(); }} />;
  }
  if (!room || !sensors.data) return <Loading what="the room" />;
  const alerts = openBySensor(episodes ?? []);
  const tiles = sensors.data
    .map((sensor) => {
      const reading = latest.data?.[sensor.id];
      return { sensor, reading, condition: conditionOf(reading, limits, alerts.get(sensor.id) ?? 0, now) };
    })
    .sort((a, b) => severity(b.condition) - severity(a.condition));

  return (
    <>
      <nav class="crumbs" aria-label="Where you are"><Link href="/">Overview</Link></nav>
      <div class="heading">
        <h1>{room.name}</h1>
        <button type="button" class="primary" onClick={() => setOpen("add")}>Add sensor</button>
        <button type="button" onClick={() => setOpen("rename")}>Rename</button>
        <button type="button" onClick={() => setOpen("delete")}>Delete</button>
      </div>
      {latest.error && <Failure error={latest.error} retry={() => void latest.refetch()} />}
      {tiles.length === 0 && (
        <Empty title="Add the first sensor of this room">
          <p>You need the id that its node sends: it is printed on the node's label or in its boot log.</p>
        </Empty>
      )}
      <ul class="tiles">{tiles.map((tile) => <li key={tile.sensor.id}><SensorTile {...tile} now={now} /></li>)}</ul>
      {open === "add" && <AddSensor roomID={id} onClose={close} />}
      {open === "rename" && <RenameRoom room={room} onClose={close} />}
      {open === "delete" && <DeleteRoom room={room} sensors={sensors.data.length} onClose={close} />}
    </>
  );
}

function AddSensor({ roomID, onClose }: { roomID: number; onClose: () => void }) {
  const [id, setID] = useState("");
  const [name, setName] = useState("");
  const [type, setType] = useState("ESP32-DHT22");
  const queries = useQueryClient();
  const discovered = useDiscovered();
  const error = id === "" ? null : sensorIDError(id);
  return (
    <Dialog title="Add sensor" onClose={onClose}>
      <Discovered nodes={discovered.data ?? []} chosen={id} onChoose={setID} />
      <Form
        action="Add sensor" onCancel={onClose}
        onSubmit={async () => {
          if (sensorIDError(id)) return;
          await unwrap(api.POST("/api/v1/sensors/new_sensor", { body: { id, name, type, room_id: roomID } }));
          await queries.invalidateQueries({ queryKey: keys.discovered });
          await queries.invalidateQueries({ queryKey: keys.sensors(roomID) });
          onClose();
        }}
      >
        <Field label="Node id" name="id" value={id} onInput={setID} maxLength={50} hint="Exactly as the node sends it." error={error} autoFocus />
        <Field label="Name" name="name" value={name} onInput={setName} maxLength={80} hint="Where it hangs, for example “Rack 4, inlet”." />
        <Field label="Type" name="type" value={type} onInput={setType} maxLength={50} />
      </Form>
    </Dialog>
  );
}

/** The nodes that the customer's gateways hear: choosing one saves typing its id. */
function Discovered({ nodes, chosen, onChoose }: { nodes: DiscoveredNode[]; chosen: string; onChoose: (id: string) => void }) {
  const now = useNow();
  if (nodes.length === 0) return null;
  return (
    <fieldset class="choices">
      <legend>Discovered by your gateways</legend>
      {nodes.map((node) => {
        const heard = node.last_reading ?? node.last_heartbeat;
        return (
          <label key={node.node_id}>
            <input type="radio" name="discovered" checked={chosen === node.node_id} onChange={() => onChoose(node.node_id)} />
            <span>
              {node.node_id}
              <span class="hint">
                {[
                  node.temperature === null ? "" : `${decimal(node.temperature)} °C, ${decimal(node.humidity)} %`,
                  heard === null ? "" : ago(Date.parse(heard), now),
                  node.gateway_name,
                ].filter(Boolean).join(" · ")}
              </span>
            </span>
          </label>
        );
      })}
    </fieldset>
  );
}

function RenameRoom({ room, onClose }: { room: Room; onClose: () => void }) {
  const [name, setName] = useState(room.name);
  const queries = useQueryClient();
  return (
    <Dialog title="Rename room" onClose={onClose}>
      <Form
        action="Save" onCancel={onClose}
        onSubmit={async () => {
          await unwrap(api.PUT("/api/v1/server_rooms/update_room/{room_id}", { params: { path: { room_id: room.id } }, body: { name } }));
          await queries.invalidateQueries({ queryKey: keys.rooms });
          onClose();
        }}
      >
        <Field label="Name" name="name" value={name} onInput={setName} maxLength={120} autoFocus />
      </Form>
    </Dialog>
  );
}

function DeleteRoom({ room, sensors, onClose }: { room: Room; sensors: number; onClose: () => void }) {
  const [, go] = useLocation();
  const queries = useQueryClient();
  const deletion = useDeletion(async () => {
    await unwrap(api.DELETE("/api/v1/server_rooms/delete_room/{room_id}", { params: { path: { room_id: room.id } } }));
    go("/");
    queries.removeQueries({ queryKey: keys.sensors(room.id) });
    await queries.invalidateQueries({ queryKey: keys.rooms });
  });
  return (
    <Confirm title={`Delete ${room.name}?`} action="Delete room" busy={deletion.busy} onConfirm={deletion.run} onClose={onClose}>
      <p>The room and its {plural(sensors, "sensor")} are deleted. Readings already stored are kept.</p>
      <p>New readings of these sensors are ignored until they are added again.</p>
      {deletion.errorText}
    </Confirm>
  );
}
