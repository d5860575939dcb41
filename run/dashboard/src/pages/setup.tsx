// The way from an empty account to limits that tell: one step after the other, each
// with what is there already.
import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { Link } from "wouter-preact";
import { api, messageOf, unwrap, type DiscoveredNode, type Gateway, type Room, type Suggestion } from "../api/client";
import {
  keys, refresh, useDiscovered, useGateways, useOverview, useRooms, useSuggestions, useThresholds,
} from "../api/queries";
import { decimal, plural, withUnit } from "../logic/format";
import type { Overview } from "../logic/overview";
import { Action } from "../components/action";
import { AddGateway, EnrolmentCommand } from "../components/enrolment";
import AddRoom from "../components/addroom";
import { Field } from "../components/form";
import { May } from "../components/may";
import { Presets } from "../components/presets";
import { Failure, Loading, StatusMark } from "../components/states";
import { useSteps } from "../components/steps";
import { useTitle } from "../components/title";

export default function SetupPage() {
  useTitle("Setup");
  const rooms = useRooms();
  const gateways = useGateways();
  const nodes = useDiscovered();
  const overview = useOverview();
  const failed = [rooms, gateways, nodes, overview].find(({ error }) => error !== null);
  const failure = failed && <Failure error={failed.error} retry={() => void failed.refetch()} />;
  if (!rooms.data || !gateways.data || !nodes.data || !overview.data) {
    return failure ?? <Loading what="what is there" />;
  }
  return <>
    {failure}
    <StepList rooms={rooms.data} gateways={gateways.data} nodes={nodes.data} overview={overview.data} />
  </>;
}

interface Found {
  rooms: readonly Room[]; gateways: readonly Gateway[]; nodes: readonly DiscoveredNode[]; overview: Overview;
}

function StepList({ rooms, gateways, nodes, overview }: Found) {
  const [adding, setAdding] = useState<"room" | "gateway" | null>(null);
  const steps = useSteps(overview);
  const present = gateways.filter(({ revoked }) => !revoked);
  const enrolled = present.filter(({ enrolled_at }) => enrolled_at !== null);
  const sensors = overview.sensors.length;
  const done = Object.values(steps).filter(Boolean).length;
  const { data: thresholds } = useThresholds();
  const waiting = present.filter(({ enrolled_at }) => enrolled_at === null);
  return (
    <>
      <h1>Setup</h1>
      <p class="lead">{done} of {Object.keys(steps).length} done. The steps can be done in any order.</p>
      <ol class="steps">
        <Step
          title="Enrol a gateway" done={steps.gateway}
          note={enrolled.length > 0 ? enrolled.map(({ name }) => name).join(", ")
            : steps.gateway ? "Readings arrive. A gateway that you enrol signs them."
            : present.length > 0 ? `${present.map(({ name }) => name).join(", ")}: run the command on its machine. `
              + `This page notices by itself.`
              : "It stands in your network, finds the nodes and passes their readings on. You get a command to copy."}
        >
          <button type="button" class={present.length === 0 && !steps.gateway ? "primary" : undefined}
            onClick={() => setAdding("gateway")}>
            Add gateway
          </button>
          {waiting.map((gateway) => <EnrolmentCommand key={gateway.id} gateway={gateway} />)}
        </Step>
        <Step title="Add rooms and their sensors" done={steps.sensors}
          note={rooms.length > 0 ? `${rooms.map(({ name }) => name).join(", ")}: ${plural(sensors, "sensor")} so far.`
            : "A room holds the sensors that measure in it. The nodes that your gateways hear appear here."}>
          <button type="button" class={rooms.length === 0 ? "primary" : undefined}
            onClick={() => setAdding("room")}>Add room</button>
          {nodes.length > 1 && rooms.length > 0 && <Many nodes={nodes} rooms={rooms} />}
          {nodes.length > 0 && rooms.length > 0 && <ul class="plain nodes">
            {nodes.map((node) => <Node key={node.node_id} node={node} rooms={rooms} />)}
          </ul>}
          {nodes.length > 0 && rooms.length === 0 && <p>{plural(nodes.length, "node")} found. Add a room first.</p>}
          {nodes.length === 0 && rooms.length > 0
            && <p>No node is waiting. You can also <Link href={`/rooms/${rooms[0]?.id}`}>add one by its id</Link>.</p>}
        </Step>
        <Step title="Choose limits" done={steps.limits}
          note={steps.limits ? "Rules of yours are there beside the two thresholds." : thresholds
            ? `Without rules of yours you are told only above ${withUnit(thresholds.max_temperature)} and `
              + `${decimal(thresholds.max_humidity)} %.` : ""}>
          <Suggestions rooms={rooms} />
          <Presets />
        </Step>
        <Step title="Have somebody woken" done={steps.watch}
          note={steps.watch ? "A watch calls people."
            : "Coldaisle sends no mail. A watch, your program on site, calls people."}>
          <p><Link href="/watches">{steps.watch ? "Your watches" : "How to start one"}</Link></p>
        </Step>
      </ol>
      {sensors > 0 && <p><Link href="/">Go to Now</Link></p>}
      {adding === "room" && <AddRoom onClose={() => setAdding(null)} />}
      {adding === "gateway" && <AddGateway onClose={() => setAdding(null)} />}
    </>
  );
}

function Step({ title, done, note, children }: {
  title: string; done: boolean; note: string; children: ComponentChildren;
}) {
  return (
    <li class={done ? "done" : undefined}>
      <h2>{title}{done && <span class="badge"><StatusMark kind="ok" />Done</span>}</h2>
      <p class="hint">{note}</p>
      <May role="admin">{children}</May>
    </li>
  );
}

/** A limit for each room that has no lower one, by what the room does. */
function Suggestions({ rooms }: { rooms: readonly Room[] }) {
  const { data } = useSuggestions();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const take = async ({ room_id, rule }: Suggestion) => {
    setBusy(true);
    setError(null);
    try {
      await unwrap(api.POST("/api/v1/rules", { body: { ...rule, room_id } }));
      await refresh(keys.live);
    } catch (refused) {
      setError(refused);
    }
    setBusy(false);
  };
  if (!data?.length) return null;
  return (
    <>
      <ul class="plain">{data.map((suggestion) => {
        const { room_id, highest, recommended, rule } = suggestion;
        const room = rooms.find(({ id }) => id === room_id)?.name;
        return (
          <li key={room_id}>
            {room} had at most {withUnit(highest)} in the last
            day. {recommended ? `${withUnit(rule.limit)} ends what is recommended for equipment.`
              : `${withUnit(rule.limit)} is well above it.`}{" "}
            <Action waits={busy && "One moment…"} onClick={() => take(suggestion)}>
              Alarm above {withUnit(rule.limit)}
              <span class="unseen"> in {room}</span>
            </Action>
          </li>
        );
      })}</ul>
      {error !== null && <p class="error" role="alert">{messageOf(error)}</p>}
    </>
  );
}

/** The sensor that a node becomes. */
const sensorOf = (node: DiscoveredNode) =>
  ({ id: node.node_id, name: node.suggested_name || node.node_id,
    type: node.suggested_name ? "Telegraf" : "ESP32-DHT22" });

/** The most that the API takes at once. */
const most = 200;

/** Many nodes at once, by what their ids and names have in common, such as a rack. */
function Many({ nodes, rooms }: { nodes: readonly DiscoveredNode[]; rooms: readonly Room[] }) {
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const wanted = text.toLowerCase();
  const called = (node: DiscoveredNode) => `${node.node_id} ${node.suggested_name}`.toLowerCase();
  const chosen = nodes.filter((node) => called(node).includes(wanted)).slice(0, most);
  const add = async (room: Room) => {
    setBusy(true);
    setError(null);
    try {
      const sensors = chosen.map(sensorOf);
      await unwrap(api.POST("/api/v1/sensors/new_sensors", { body: { room_id: room.id, sensors } }));
      await refresh(keys.discovered, keys.live);
      setText("");
    } catch (refused) {
      setError(refused);
    }
    setBusy(false);
  };
  return (
    <>
      <Field
        label="Only nodes with" name="only" value={text} onInput={setText} maxLength={80}
        hint="A part of their names, such as a rack."
      />
      <p class="actions">{chosen.length > 0 && rooms.map((room) => (
        <Action key={room.id} waits={busy && "One moment…"} onClick={() => add(room)}>
          Put {plural(chosen.length, "node")} into {room.name}
        </Action>
      ))}</p>
      {error !== null && <p class="error" role="alert">{messageOf(error)}</p>}
    </>
  );
}

/** A node with a button for each room: one click makes it a sensor. */
function Node({ node, rooms }: { node: DiscoveredNode; rooms: readonly Room[] }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const item = useRef<HTMLLIElement>(null);
  const add = async (room: Room) => {
    setBusy(true);
    const own = item.current;
    try {
      await unwrap(api.POST("/api/v1/sensors/new_sensor", { body: { ...sensorOf(node), room_id: room.id } }));
      await refresh(keys.discovered, keys.live);
      // The button goes with the node, now or soon: the focus goes on to the next one's.
      const next = [...document.querySelectorAll<HTMLElement>(".nodes button")]
        .find((button) => !own?.contains(button));
      (next ?? document.getElementById("main"))?.focus();
    } catch (refused) {
      setError(refused);
    }
    setBusy(false);
  };
  return (
    <li ref={item}>
      <span>
        <code>{node.node_id}</code>{node.suggested_name && <small> {node.suggested_name}</small>}
        {node.temperature !== null && <small> {withUnit(node.temperature)}</small>}
      </span>
      <span class="actions">{rooms.map((room) => (
        <Action key={room.id} waits={busy && "One moment…"} onClick={() => add(room)}>
          <span class="unseen">Put {node.node_id} into </span>{room.name}
        </Action>
      ))}</span>
      {error !== null && <p class="error" role="alert">{messageOf(error)}</p>}
    </li>
  );
}
