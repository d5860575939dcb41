// Rooms as maps: a cell for each sensor, coloured by its temperature against its
// limits. Cells are links. A map is one stop for the keyboard; arrows move within it.
import { useMemo, useState } from "preact/hooks";
import { Link, useLocation } from "wouter-preact";
import { ago, changeOf, decimal, inUnit, plural, withUnit } from "../logic/format";
import { floorOf, neighbour, type Floor } from "../logic/floor";
import { named } from "../logic/names";
import { limitsOf, stateNames, stepOf, type LiveSensor, type Overview, type RoomView } from "../logic/overview";
import { useNow } from "./clock";
import { May } from "./may";
import { memo } from "./memo";
import { Sparkline } from "./sparkline";
import { useTurn } from "./turns";

/** Cells with name, value and the last day, with the value, or of colour alone. */
export type Density = "large" | "medium" | "small";

/** For so many sensors on the screen. */
export const densityOf = (sensors: number): Density => (sensors <= 80 ? "large" : sensors <= 400 ? "medium" : "small");

const silent = (sensor: LiveSensor) => !sensor.reports || sensor.temperature === null;

/** A sensor in words. */
export function describe(sensor: LiveSensor): string {
  const value = sensor.temperature === null ? "" : `, ${withUnit(sensor.temperature)}`;
  return `${sensor.name}${value}${sensor.state === "ok" ? "" : `, ${stateNames[sensor.state].toLowerCase()}`}`;
}

interface MapProps {
  room: RoomView;
  overview: Overview;
  density: Density;
  /** On the page of the room itself. */
  untitled?: boolean;
}

/** How many cells are drawn in one turn. */
const turnSize = 50;

export const RoomMap = memo(function RoomMap({ room, overview, density, untitled }: MapProps) {
  const [chosen, setActive] = useState(0);
  const [peeked, setPeeked] = useState<string | null>(null);
  const [, go] = useLocation();
  const { sensors } = room;
  // There may be fewer now: one of them the keyboard always reaches.
  const active = Math.min(chosen, sensors.length - 1);
  const [floor, blocks] = useMemo(() => {
    const places = floorOf(sensors);
    return [
      places, Array.from({ length: Math.ceil(sensors.length / turnSize) },
        (_, i) => ({ overview, floor: places, sensors: sensors.slice(i * turnSize, (i + 1) * turnSize) })),
    ];
  }, [overview, sensors]);
  const shown = peeked === null ? undefined : sensors.find((sensor) => sensor.id === peeked);
  const cellOf = (target: EventTarget | null) =>
    (target as HTMLElement | null)?.closest<HTMLAnchorElement>("[data-sensor]");
  const peek = (target: EventTarget | null) => setPeeked(cellOf(target)?.dataset.sensor ?? null);
  const open = (event: MouseEvent) => {
    const cell = cellOf(event.target);
    // The browser opens tabs and windows by itself.
    if (!cell || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(cell.pathname);
  };
  const move = (event: KeyboardEvent) => {
    const list = event.currentTarget as HTMLElement;
    const cells = [...list.children] as HTMLElement[];
    // A row is as long as the width allows.
    const columns = Math.max(1, cells.filter((cell) => cell.offsetTop === cells[0]?.offsetTop).length);
    const to = (floor && neighbour(floor.places, active, event.key)) ?? {
      ArrowRight: active + 1, ArrowLeft: active - 1, ArrowDown: active + columns, ArrowUp: active - columns,
      Home: 0, End: cells.length - 1,
    }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    if (!sensors[to]) return;
    setActive(to);
    cells[to]?.focus();
  };
  return (
    <section class={`room ${room.state} ${density}`} aria-labelledby={`room-${room.id}`}
      style={{ "--across": `${Math.max(1, floor?.columns ?? sensors.length)}`,
        "--square": `${Math.ceil(Math.sqrt(sensors.length))}` }}>
      <h2 id={`room-${room.id}`} class={untitled ? "unseen" : undefined}>
        <Link href={`/rooms/${room.id}`}>{room.name}</Link>
      </h2>
      <p class="peek">{shown
        ? <Peek sensor={shown} />
        : <Extremes room={room} />}
      </p>
      {sensors.length === 0
        ? <p class="hint">No sensor here yet.<May role="admin">
          {" "}<Link href={`/rooms/${room.id}`}>Add one to this room</Link>.</May></p>
        : (
        <div
          class={floor ? "cells floor" : "cells"} role="group" aria-label={`Sensors of ${room.name}`}
          onKeyDown={move} onFocusIn={(event) => peek(event.target)} onFocusOut={() => setPeeked(null)}
          onMouseOver={(event) => peek(event.target)} onMouseLeave={() => setPeeked(null)} onClick={open}
        >
          {blocks.map((block, i) => (
            <Block key={i} block={block} density={density} from={i * turnSize}
              active={Math.floor(active / turnSize) === i ? active : -1} />
          ))}
        </div>
      )}
    </section>
  );
});

interface CellsProps {
  block: { overview: Overview; floor: Floor | null; sensors: readonly LiveSensor[] };
  density: Density;
  /** The place of the first in the room, and of the one that the keyboard is on, or -1. */
  from: number;
  active: number;
}

/** Some cells, drawn anew when it is their turn. */
function Block({ block, ...rest }: CellsProps) {
  const turn = useTurn(block);
  return turn && <Cells block={turn} {...rest} />;
}

function placeOf(floor: Floor | null, i: number) {
  const place = floor?.places[i];
  return place && { gridColumn: `${place.column}`, gridRow: `${place.row}` };
}

const Cells = memo(function Cells({ block: { overview, floor, sensors }, density, from, active }: CellsProps) {
  return (
    <>
      {sensors.map((sensor, i) => (
        <a
          key={sensor.id} href={`/sensors/${encodeURIComponent(sensor.id)}`} tabIndex={from + i === active ? 0 : -1}
          style={placeOf(floor, from + i)} data-sensor={sensor.id} aria-label={describe(sensor)}
          class={`cell ${sensor.state} `
            + `${silent(sensor) ? "blank" : `step${stepOf(sensor.temperature ?? 0, limitsOf(overview, sensor))}`}`}
        >
          <b>{valueIn(sensor, density)}</b>
          {density === "large" && <>
            <span>{sensor.name}</span><Sparkline line={sensor.sparkline} start={overview.sparkline_start} />
          </>}
        </a>
      ))}
    </>
  );
});

/** A value as it fits: without decimals where cells are small. */
function valueIn({ temperature }: LiveSensor, density: Density): string {
  if (temperature === null) return "–";
  const value = inUnit(temperature, "°C");
  return density === "small" ? String(Math.round(value)) : decimal(value);
}

/** The highest temperature of a room, how it changes, and how many sensors there are. */
function Extremes({ room: { highest, change, sensors } }: { room: RoomView }) {
  const moved = changeOf(change);
  return (
    <>
      {highest !== null && <><strong>{withUnit(highest)}</strong>{moved
        && <span title="in 15 min"> {moved}<span class="unseen"> in 15 min</span></span>} · </>}
      {plural(sensors.length, "sensor")}
    </>
  );
}

/** A sensor in a line. It has the clock, so that a map is rendered by what is measured alone. */
function Peek({ sensor }: { sensor: LiveSensor }) {
  const now = useNow();
  return (
    <>
      {sensor.temperature !== null && <strong>{withUnit(sensor.temperature)} </strong>}
      {named(sensor.name)} · {sensor.humidity !== null && `${decimal(sensor.humidity)} % · `}
      {sensor.state !== "ok" && `${stateNames[sensor.state]} · `}
      {sensor.timestamp && ago(Date.parse(sensor.timestamp), now)}
    </>
  );
}

const steps = [-4, -3, -2, -1, 0, 1, 2, 3, 4];

/** What the colours of maps say, behind a "?". */
export const Legend = memo(function Legend() {
  return (
    <>
      <button type="button" class="quiet help" aria-label="What the colours mean"
        {...{ popovertarget: "legend" }}>?</button>
      <div id="legend" class="menu" popover="auto"><Scale /></div>
    </>
  );
});

export function Scale() {
  return (
    <div class="legend">
      <span>too cold</span>
      <span class="scale" aria-hidden="true">{steps.map((step) => <i key={step} class={`step${step}`} />)}</span>
      <span>too hot, by each sensor's limits; a bar above: hot, below: cold</span>
      <span><i class="cell blank silent" aria-hidden="true" /> silent</span>
      <span><i class="cell blank" aria-hidden="true" /> no reading yet, or late</span>
      <span><i class="cell step0 critical" aria-hidden="true" /> critical</span>
      <span><i class="hatched" aria-hidden="true" /> as it was when contact was lost</span>
    </div>
  );
}
