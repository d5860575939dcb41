// Where a rule or a maintenance window applies: everywhere, in a room, at a sensor.
import { useRooms, useSensorNames, useSensors } from "../api/queries";
import { Select } from "./form";

export interface Scope {
  room_id?: number;
  sensor_id?: string;
}

/** A scope as it is chosen: of a sensor the room is kept, to list its neighbours. Null: no room is chosen yet. */
export interface ChosenScope {
  roomID: number | null;
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
      <Select label="Room" value={roomID} onChange={(chosen) => onChange({ roomID: chosen, sensorID: "" })} options={options} />
      {roomID !== null && roomID > 0 && <SensorChoice roomID={roomID} scope={scope} onChange={onChange} />}
    </div>
  );
}

function SensorChoice({ roomID, scope, onChange }: { roomID: number; scope: ChosenScope; onChange: (scope: ChosenScope) => void }) {
  const sensors = useSensors(roomID);
  const options = [["", "All of the room"] as const, ...(sensors.data ?? []).map(({ id, name }) => [id, name] as const)];
  return <Select label="Sensor" value={scope.sensorID} onChange={(sensorID) => onChange({ ...scope, sensorID })} options={options} />;
}

/** A scope in words. */
export function ScopeName({ scope }: { scope: { room_id: number | null; sensor_id: string | null } }) {
  const rooms = useRooms();
  const nameOf = useSensorNames();
  if (scope.sensor_id !== null) return <>Sensor {nameOf(scope.sensor_id)}</>;
  if (scope.room_id === null) return <>All sensors</>;
  return <>{rooms.data?.find(({ id }) => id === scope.room_id)?.name ?? `Room ${scope.room_id}`}</>;
}
