// One room: its temperatures, its map and its sensors, with forms to change and delete it.
import { useMemo, useRef, useState } from "preact/hooks";
import { Link, useLocation } from "wouter-preact";
import { api, unwrap, type DiscoveredNode } from "../api/client";
import { keys, refresh, useDiscovered, useOverview } from "../api/queries";
import { ago, both, changeOf, plural, withUnit } from "../logic/format";
import { roomsOf, type Overview, type RoomView } from "../logic/overview";
import { limitOf } from "../logic/room";
import { sensorIDError } from "../logic/validation";
import { StateBadge } from "../components/badge";
import { useNow } from "../components/clock";
import { ContactNotice, useLostContact } from "../components/contact";
import { Confirm, Dialog } from "../components/dialog";
import { Field, Form } from "../components/form";
import { May } from "../components/may";
import { Empty, Failure, Loading } from "../components/states";
import { chunk } from "../components/chunk";
import { RoomMap } from "../components/heatmap";
import { Instructions } from "../components/instructions";
import { RoomChart } from "../components/roomchart";
import { SensorTable } from "../components/sensors";
import { useTitle } from "../components/title";

const Arrange = chunk("floor plan", () => import("../components/arrange"));

export default function RoomPage({ id }: { id: number }) {
  const { data, error, refetch } = useOverview();
  const lost = useLostContact();
  const [form, setForm] = useState<RoomForm | null>(null);
  const room = useMemo(() => data && roomsOf(data).find((candidate) => candidate.id === id), [data, id]);
  useTitle(room?.name ?? "Room");
  const close = () => setForm(null);

  if (!data) return error ? <Failure error={error} retry={() => void refetch()} /> : <Loading what="the room" />;
  if (!room) return <><h1>Room not found</h1><p><Link href="/rooms">Go to the rooms</Link></p></>;

  const density = room.sensors.length > 400 ? "small" : room.sensors.length > 60 ? "medium" : "large";
  return (
    <>
      <Heading room={room} overview={data} onForm={setForm} />
      <ContactNotice />
      {room.sensors.length === 0 && (
        <Empty title="No sensor in this room yet">
          <May role="admin">
            <p>You need the id that its node sends: it is printed on the node's label or in its boot log.</p>
          </May>
        </Empty>
      )}
      {form === "arrange" ? <Arrange room={room} onClose={close} /> : room.sensors.length > 0 && (
        <>
          <RoomChart sensors={room.sensors} overview={data} />
          <div class={`rooms ${density}${lost === null ? "" : " stale"}`}>
            <RoomMap room={room} overview={data} density={density} untitled />
          </div>
          <SensorTable sensors={room.sensors} overview={data} stale={lost !== null} />
        </>
      )}
      <Instructions roomID={id} />
      {form === "add" && <AddSensor roomID={id} onClose={close} />}
      {form === "rename" && <RenameRoom room={room} onClose={close} />}
      {form === "delete" && <DeleteRoom room={room} sensors={room.sensors.length} onClose={close} />}
    </>
  );
}

type RoomForm = "add" | "rename" | "delete" | "arrange";

/** Its name and state, and what can be done with it. */
function Heading({ room, overview, onForm }: {
  room: RoomView; overview: Overview; onForm: (form: RoomForm) => void;
}) {
  const menu = useRef<HTMLDivElement>(null);
  const choose = (form: RoomForm) => {
    menu.current?.hidePopover();
    onForm(form);
  };
  return (
    <div class="heading">
      <h1>{room.name}</h1>
      {room.sensors.length > 0 && (
        <span class="strip">
          <StateBadge state={room.state} /> {room.highest !== null && [`highest ${withUnit(room.highest)}`,
            room.change !== null && `${changeOf(room.change)} in 15 min`, `limit ${withUnit(limitOf(room, overview))}`]
            .filter(Boolean).join(", ")}
        </span>
      )}
      <May role="admin">
        <button type="button" class="primary" onClick={() => onForm("add")}>Add sensor</button>
        <button type="button" aria-label="More of this room" {...{ popovertarget: "room-menu" }}>⋯</button>
        <div id="room-menu" class="menu listed-menu" popover="auto" ref={menu}>
          {room.sensors.length > 0
            && <button type="button" class="quiet" onClick={() => choose("arrange")}>Arrange</button>}
          <button type="button" class="quiet" onClick={() => choose("rename")}>Rename</button>
          <button type="button" class="quiet" onClick={() => choose("delete")}>Delete</button>
        </div>
      </May>
    </div>
  );
}

function AddSensor({ roomID, onClose }: { roomID: number; onClose: () => void }) {
  const [id, setID] = useState("");
  const [name, setName] = useState("");
  const [type, setType] = useState("ESP32-DHT22");
  const discovered = useDiscovered();
  const error = id === "" ? null : sensorIDError(id);
  const nodes = discovered.data ?? [];
  return (
    <Dialog title="Add sensor" onClose={onClose}>
      <Discovered nodes={nodes} chosen={id}
        onChoose={(node) => {
          setID(node.node_id);
          // A name that was typed stays, that of a node chosen before does not.
          if (!name || nodes.some(({ suggested_name }) => suggested_name === name)) setName(node.suggested_name);
        }} />
      <Form
        action="Add sensor" onCancel={onClose}
        onSubmit={async () => {
          if (sensorIDError(id)) return;
          await unwrap(api.POST("/api/v1/sensors/new_sensor", { body: { id, name, type, room_id: roomID } }));
          await refresh(keys.discovered, keys.live);
          onClose();
        }}
      >
        <Field label="Node id" name="id" value={id} onInput={setID} maxLength={50} hint="Exactly as the node sends it."
          error={error} autoFocus />
        <Field label="Name" name="name" value={name} onInput={setName} maxLength={80}
          hint="Where it hangs, for example “Rack 4, inlet”." />
        <Field label="Type" name="type" value={type} onInput={setType} maxLength={50} />
      </Form>
    </Dialog>
  );
}

/** The nodes that the customer's gateways hear: choosing one saves typing its id. */
function Discovered({ nodes, chosen, onChoose }: {
  nodes: DiscoveredNode[]; chosen: string; onChoose: (node: DiscoveredNode) => void;
}) {
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
                {[node.suggested_name, both(node), heard === null ? "" : ago(Date.parse(heard), now), node.gateway_name]
                  .filter(Boolean).join(" · ")}
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
  return (
    <Dialog title="Rename room" onClose={onClose}>
      <Form
        action="Save" onCancel={onClose}
        onSubmit={async () => {
          await unwrap(
            api.PUT("/api/v1/server_rooms/update_room/{room_id}", {
              params: { path: { room_id: room.id } }, body: { name },
            }),
          );
          await refresh(keys.live);
          onClose();
        }}
      >
        <Field label="Name" name="name" value={name} onInput={setName} maxLength={120} autoFocus />
      </Form>
    </Dialog>
  );
}

function DeleteRoom({ room, sensors, onClose }: {
  room: { id: number; name: string }; sensors: number; onClose: () => void;
}) {
  const [, go] = useLocation();
  const remove = async () => {
    await unwrap(api.DELETE("/api/v1/server_rooms/delete_room/{room_id}", { params: { path: { room_id: room.id } } }));
    go("/rooms");
    await refresh(keys.live);
  };
  return (
    <Confirm title={`Delete ${room.name}?`} action="Delete room" onConfirm={remove} onClose={onClose}>
      <p>The room and its {plural(sensors, "sensor")} are deleted. Readings already stored are kept.</p>
      <p>New readings of these sensors are ignored until they are added again.</p>
    </Confirm>
  );
}
