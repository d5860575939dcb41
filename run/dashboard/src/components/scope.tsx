// Where a rule applies: everywhere, in a room, at a sensor.
import { useRooms, useSensorNames, useSensors } from "../api/queries";
import { Select } from "./form";
import { Failure, Loading } from "./states";

export interface Scope {
  room_id?: number;
  sensor_id?: string;
}

/** A scope as it is chosen: of a sensor the room is kept, to list its neighbours. */
export interface ChosenScope {
  roomID: number;
  sensorID: string;
}

export const everywhere: ChosenScope = { roomID: 0, sensorID: "" };

export function scopeOf({ roomID, sensorID }: ChosenScope): Scope {
  if (sensorID) return { sensor_id: sensorID };
  return roomID ? { room_id: roomID } : {};
}

export function ScopeField({ scope, onChange }: { scope: ChosenScope; onChange: (scope: ChosenScope) => void }) {
  const rooms = useRooms();
  const nameOf = useSensorNames();
  const { roomID, sensorID } = scope;
  // A sensor that stood in the saved scope is kept, though its room is not known here.
  const all = [[0, sensorID && !roomID ? `Sensor ${nameOf(sensorID)}` : "All rooms"] as const];
  const options = [...all, ...(rooms.data ?? []).map(({ id, name }) => [id, name] as const)];
  return (
    <div class="pair">
      <Select label="Room" value={roomID}
        onChange={(chosen) => onChange({ roomID: chosen, sensorID: "" })} options={options} />
      {roomID > 0 && <SensorChoice roomID={roomID} sensorID={sensorID}
        onChange={(chosen) => onChange({ roomID, sensorID: chosen })} />}
    </div>
  );
}

/** All of a room, or one of its sensors. */
export function SensorChoice({ roomID, sensorID, onChange }: {
  roomID: number; sensorID: string; onChange: (sensorID: string) => void;
}) {
  const sensors = useSensors(roomID);
  const options = [["", "All of the room"] as const,
    ...(sensors.data ?? []).map(({ id, name }) => [id, name] as const)];
  return <Select label="Sensor" value={sensorID} onChange={onChange} options={options} />;
}

/** A scope in words. */
export function ScopeName({ scope }: { scope: { room_id: number | null; sensor_id: string | null } }) {
  const rooms = useRooms();
  const nameOf = useSensorNames();
  if (scope.sensor_id !== null) return <>Sensor {nameOf(scope.sensor_id)}</>;
  if (scope.room_id === null) return <>All sensors</>;
  return <>{rooms.data?.find(({ id }) => id === scope.room_id)?.name ?? `Room ${scope.room_id}`}</>;
}

/** Rooms to choose by checkboxes, of which none is chosen for the user. */
export function RoomChoice({ chosen, onChange, hint, required }: {
  chosen: number[]; onChange: (rooms: number[]) => void; hint?: string; required?: boolean;
}) {
  const { data: rooms, error, refetch } = useRooms();
  if (!rooms) return error ? <Failure error={error} retry={() => void refetch()} /> : <Loading what="rooms" />;
  if (rooms.length === 0) return null;
  return (
    <fieldset class="choices">
      <legend>Rooms</legend>
      {hint && <p class="hint">{hint}</p>}
      {rooms.map(({ id, name }) => (
        <label key={id} class="check">
          <input
            type="checkbox" checked={chosen.includes(id)} required={required && chosen.length === 0}
            onChange={(event) => onChange(event.currentTarget.checked ? [...chosen, id]
              : chosen.filter((other) => other !== id))}
          /> {name}
        </label>
      ))}
    </fieldset>
  );
}

export function RoomNames({ ids }: { ids: number[] }) {
  const { data } = useRooms();
  return <>{ids.map((id) => data?.find((room) => room.id === id)?.name ?? `Room ${id}${data ? ", deleted" : ""}`)
    .join(", ")}</>;
}
