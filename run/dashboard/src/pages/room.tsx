// One room: its sensors, with forms to change and delete it.
import { useQueryClient } from "@tanstack/react-query";
import { useMemo, useState } from "preact/hooks";
import { Link, useLocation } from "wouter-preact";
import { api, unwrap, type DiscoveredNode } from "../api/client";
import { keys, useDiscovered, useOverview } from "../api/queries";
import { ago, both, plural } from "../logic/format";
import { tileOf } from "../logic/floor";
import { roomsOf } from "../logic/overview";
import { sensorIDError } from "../logic/validation";
import { useNow } from "../components/clock";
import { ContactNotice, useLostContact } from "../components/contact";
import { useDeletion } from "../components/deletion";
import { Confirm, Dialog } from "../components/dialog";
import { Field, Form } from "../components/form";
import { Empty, Failure, Loading } from "../components/states";
import { SensorTiles } from "../components/tile";
import { chunk } from "../components/chunk";
import { RoomMap } from "../components/heatmap";
import { useTitle } from "../components/title";

const Arrange = chunk("floor plan", () => import("../components/arrange"));
/** Above so many sensors the map is shown, and tiles when somebody wants them. */
const tilesUpTo = 60;

export default function RoomPage({ id }: { id: number }) {
  const now = useNow();
  const { data, error, refetch } = useOverview();
  const lost = useLostContact();
  const [form, setForm] = useState<"add" | "rename" | "delete" | "arrange" | null>(null);
  const room = useMemo(() => data && roomsOf(data).find((candidate) => candidate.id === id), [data, id]);
  useTitle(room?.name ?? "Room");
  const [tiles, setTiles] = useState(false);
  const close = () => setForm(null);

  if (!data) return error ? <Failure error={error} retry={() => void refetch()} /> : <Loading what="the room" />;
  if (!room) return <Empty title="Room not found"><p><Link href="/">Go to the overview</Link></p></Empty>;

  const many = room.sensors.length > tilesUpTo;
  return (
    <>
      <nav class="crumbs" aria-label="Where you are"><Link href="/">Overview</Link></nav>
      <div class="heading">
        <h1>{room.name}</h1>
        <button type="button" class="primary" onClick={() => setForm("add")}>Add sensor</button>
        {room.sensors.length > 0 && <button type="button" onClick={() => setForm("arrange")}>Arrange</button>}
        <button type="button" onClick={() => setForm("rename")}>Rename</button>
        <button type="button" onClick={() => setForm("delete")}>Delete</button>
      </div>
      <ContactNotice />
      {room.sensors.length === 0 && (
        <Empty title="Add the first sensor of this room">
          <p>You need the id that its node sends: it is printed on the node's label or in its boot log.</p>
        </Empty>
      )}
      {form === "arrange" && <Arrange room={room} onClose={close} />}
      {form !== "arrange" && (many || room.sensors.some(({ position }) => tileOf(position))) && (
        <div class={`rooms ${many ? "medium" : "large"}${lost === null ? "" : " stale"}`}>
          <RoomMap room={room} overview={data} density={many ? "medium" : "large"} untitled />
        </div>
      )}
      {many && <p><button type="button" aria-expanded={tiles} onClick={() => setTiles(!tiles)}>{tiles ? "Hide the tiles" : `Show ${room.sensors.length} tiles`}</button></p>}
      {(tiles || !many) && <ul class={`tiles${lost === null ? "" : " stale"}`}><SensorTiles sensors={room.sensors} overview={data} now={now} /></ul>}
      {form === "add" && <AddSensor roomID={id} onClose={close} />}
      {form === "rename" && <RenameRoom room={room} onClose={close} />}
      {form === "delete" && <DeleteRoom room={room} sensors={room.sensors.length} onClose={close} />}
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
      <Discovered nodes={discovered.data ?? []} chosen={id} onChoose={(node) => { setID(node.node_id); setName(name || node.suggested_name); }} />
      <Form
        action="Add sensor" onCancel={onClose}
        onSubmit={async () => {
          if (sensorIDError(id)) return;
          await unwrap(api.POST("/api/v1/sensors/new_sensor", { body: { id, name, type, room_id: roomID } }));
          await queries.invalidateQueries({ queryKey: keys.discovered });
          await queries.invalidateQueries({ queryKey: keys.live });
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
function Discovered({ nodes, chosen, onChoose }: { nodes: DiscoveredNode[]; chosen: string; onChoose: (node: DiscoveredNode) => void }) {
  const now = useNow();
  if (nodes.length === 0) return null;
  return (
    <fieldset class="choices">
      <legend>Discovered by your gateways</legend>
      {nodes.map((node) => {
        const heard = node.last_reading ?? node.last_heartbeat;
        return (
          <label key={node.node_id}>
            <input type="radio" name="discovered" checked={chosen === node.node_id} onChange={() => onChoose(node)} />
            <span>
              {node.node_id}
              <span class="hint">
                {[
                  node.suggested_name,
                  both(node),
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

function RenameRoom({ room, onClose }: { room: { id: number; name: string }; onClose: () => void }) {
  const [name, setName] = useState(room.name);
  const queries = useQueryClient();
  return (
    <Dialog title="Rename room" onClose={onClose}>
      <Form
        action="Save" onCancel={onClose}
        onSubmit={async () => {
          await unwrap(api.PUT("/api/v1/server_rooms/update_room/{room_id}", { params: { path: { room_id: room.id } }, body: { name } }));
          await queries.invalidateQueries({ queryKey: keys.live });
          onClose();
        }}
      >
        <Field label="Name" name="name" value={name} onInput={setName} maxLength={120} autoFocus />
      </Form>
    </Dialog>
  );
}

function DeleteRoom({ room, sensors, onClose }: { room: { id: number; name: string }; sensors: number; onClose: () => void }) {
  const [, go] = useLocation();
  const queries = useQueryClient();
  const deletion = useDeletion(async () => {
    await unwrap(api.DELETE("/api/v1/server_rooms/delete_room/{room_id}", { params: { path: { room_id: room.id } } }));
    go("/");
    await queries.invalidateQueries({ queryKey: keys.live });
  });
  return (
    <Confirm title={`Delete ${room.name}?`} action="Delete room" busy={deletion.busy} onConfirm={deletion.run} onClose={onClose}>
      <p>The room and its {plural(sensors, "sensor")} are deleted. Readings already stored are kept.</p>
      <p>New readings of these sensors are ignored until they are added again.</p>
      {deletion.errorText}
    </Confirm>
  );
}
