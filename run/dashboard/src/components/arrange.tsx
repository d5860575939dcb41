// Sets out the sensors of a room on its floor, by drag and by keyboard.
import { draggable, dropTargetForElements } from "@atlaskit/pragmatic-drag-and-drop/element/adapter";
import type { ComponentChildren } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { api, messageOf, unwrap } from "../api/client";
import { keys, refresh } from "../api/queries";
import {
  arrows, columnName, fill, mostTiles, put, tileName, tileOf, withTile, type Plan, type Tile,
} from "../logic/floor";
import type { RoomView } from "../logic/overview";
import { Action } from "./action";
import { StatusMark } from "./states";

/** Writes the positions that differ from those kept. What is repeated after an error goes on where it stopped. */
async function save(roomID: number, plan: Plan): Promise<void> {
  const sensors = await unwrap(
    api.GET("/api/v1/sensors/list_sensors/{room_id}", { params: { path: { room_id: roomID } } }),
  );
  for (const { id, name, type, position: before } of sensors) {
    if (!plan.has(id)) continue;
    const position = withTile(before, plan.get(id) ?? null);
    if (position === before) continue;
    await unwrap(
      api.PUT("/api/v1/sensors/update_sensor/{sensor_id}", {
        params: { path: { sensor_id: id } }, body: { name, type, room_id: roomID, position },
      }),
    );
  }
}

export default function Arrange({ room, onClose }: { room: RoomView; onClose: () => void }) {
  const [plan, setPlan] = useState<Plan>(() => new Map(room.sensors.map(({ id, position }) => [id, tileOf(position)])));
  const [said, say] = useState("");
  const [busy, setBusy] = useState(false);
  const saving = busy && "The arrangement is being saved.";
  const [error, setError] = useState<unknown>(null);
  const help = useId();
  const names = new Map(room.sensors.map(({ id, name }) => [id, name]));
  const tiles = [...plan.values()].filter((tile) => tile !== null);
  const columns = Math.min(mostTiles, Math.max(10, ...tiles.map(({ column }) => column + 1)));
  const rows = Math.min(mostTiles, Math.max(4, ...tiles.map(({ row }) => row + 1)));
  const at = new Map([...plan].flatMap(([id, tile]) => (tile ? [[tileName(tile), id] as const] : [])));
  const waiting = [...plan].filter(([, tile]) => tile === null).map(([id]) => id);

  const move = (id: string, tile: Tile | null) => {
    setPlan((before) => put(before, id, tile));
    say(`${names.get(id) ?? id} ${tile ? `on ${tileName(tile)}` : "off the floor"}`);
  };
  const press = (id: string, event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = arrows[event.key];
    const from = plan.get(id) ?? null;
    if (event.key === "Delete" || event.key === "Backspace") move(id, null);
    else if (!step) return;
    else if (!from) {
      // From the tray to the first free tile.
      const free = Array.from({ length: columns * rows },
        (_, i): Tile => ({ column: (i % columns) + 1, row: Math.floor(i / columns) + 1 }))
        .find((tile) => !at.has(tileName(tile)));
      if (free) move(id, free);
    } else {
      const to = { column: from.column + step.across, row: from.row + step.down };
      if (to.column >= 1 && to.row >= 1 && to.column <= mostTiles && to.row <= mostTiles) move(id, to);
    }
    event.preventDefault();
  };
  // A sensor that is moved is another element: the focus goes with it, before the next key.
  const held = useRef<string | null>(null);
  const root = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const moved = [...(root.current?.querySelectorAll<HTMLElement>("[data-sensor]") ?? [])]
      .find((element) => element.dataset.sensor === held.current);
    if (moved && document.activeElement !== moved) moved.focus();
  }, [plan]);
  const rack = (id: string) => (
    <Rack key={id} id={id} name={names.get(id) ?? id} help={help} onKeyDown={(event) => press(id, event)}
      onFocus={() => { held.current = id; }} />
  );
  return (
    <section class="card arrange" aria-labelledby={`${help}-title`} ref={root}>
      <h2 id={`${help}-title`}>Arrange the room</h2>
      <p class="hint" id={help}>
        Drag a sensor to its floor tile, or move the one in focus with the arrows; Delete takes it off the floor.
      </p>
      <div class="scroll">
        <div class="plan" style={{ gridTemplateColumns: `2rem repeat(${columns}, minmax(3.5rem, 1fr))` }}>
          <span />
          {Array.from({ length: columns }, (_, i) =>
            <span key={i} class="axis" aria-hidden="true">{columnName(i + 1)}</span>)}
          {Array.from({ length: rows }, (_, r) => [
            <span key={`row${r}`} class="axis" aria-hidden="true">{r + 1}</span>,
            ...Array.from({ length: columns }, (_, c) => {
              const tile = { column: c + 1, row: r + 1 };
              const id = at.get(tileName(tile));
              return <Slot key={tileName(tile)} name={tileName(tile)}
                onDrop={(dropped) => move(dropped, tile)}>{id !== undefined && rack(id)}</Slot>;
            }),
          ])}
        </div>
      </div>
      <Slot name="off the floor" tray onDrop={(dropped) => move(dropped, null)}>
        {waiting.length === 0 ? <span class="hint">Every sensor has its tile.</span> : waiting.map(rack)}
      </Slot>
      <p class="unseen" role="status">{said}</p>
      {error !== null && <p class="error" role="alert"><StatusMark kind="alert" /> {messageOf(error)}</p>}
      <div class="actions" aria-busy={busy}>
        <Action
          class="primary" waits={saving}
          onClick={async () => {
            setBusy(true);
            setError(null);
            try {
              await save(room.id, plan);
              await refresh(keys.live, ["sensor"]);
              onClose();
            } catch (refused) {
              setError(refused);
              setBusy(false);
            }
          }}
        >{busy ? "One moment…" : "Save the arrangement"}</Action>
        {waiting.length > 0
          && <Action waits={saving} onClick={() => setPlan(fill(plan, 10))}>Set out the rest in rows</Action>}
        <Action waits={saving} onClick={onClose}>Cancel</Action>
      </div>
    </section>
  );
}

function Rack({ id, name, help, onKeyDown, onFocus }: {
  id: string; name: string; help: string; onKeyDown: (event: KeyboardEvent) => void; onFocus: () => void;
}) {
  const element = useRef<HTMLButtonElement>(null);
  useEffect(
    () => (element.current ? draggable({ element: element.current, getInitialData: () => ({ id }) }) : undefined), [id],
  );
  return <button ref={element} type="button" class="rack" data-sensor={id} aria-describedby={help} onKeyDown={onKeyDown}
    onFocus={onFocus}>{name}</button>;
}

function Slot({ name, tray, onDrop, children }: {
  name: string; tray?: boolean; onDrop: (id: string) => void; children: ComponentChildren;
}) {
  const element = useRef<HTMLDivElement>(null);
  const [over, setOver] = useState(false);
  const drop = useRef(onDrop);
  drop.current = onDrop;
  useEffect(() => (element.current ? dropTargetForElements({
    element: element.current,
    onDragEnter: () => setOver(true),
    onDragLeave: () => setOver(false),
    onDrop: ({ source }) => {
      setOver(false);
      drop.current(String(source.data.id));
    },
  }) : undefined), []);
  return <div ref={element} class={`${tray ? "tray" : "slot"}${over ? " over" : ""}`} data-tile={name}>{children}</div>;
}
