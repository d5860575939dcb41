// What is drawn beside a sensor: itself earlier, sensors of its room, any other sensor.
import { useMemo, useState } from "preact/hooks";
import type { Sensor } from "../api/client";
import { byName } from "../logic/names";
import type { Overview } from "../logic/overview";
import { Select } from "./form";

/** More lines than that nobody can tell apart. */
export const mostCompared = 3;

const day = 86_400_000;
/** The sensor itself, earlier; no id of a sensor has an "@". */
export const earlier: Record<string, { name: string; by: number }> = {
  "@1d": { name: "Yesterday", by: day }, "@7d": { name: "Last week", by: 7 * day },
};

interface Props {
  sensor: Sensor; overview: Overview | undefined; compared: readonly string[]; onChange: (compared: string[]) => void;
}

export function Comparison({ sensor, overview, compared, onChange }: Props) {
  const [open, setOpen] = useState(compared.length > 0);
  const all = overview?.sensors;
  const neighbours = useMemo(
    () => byName((all ?? []).filter(({ room_id, id }) => room_id === sensor.room_id && id !== sensor.id)),
    [all, sensor],
  );
  const choice = [...Object.entries(earlier).map(([id, { name }]) => ({ id, name })), ...neighbours];
  const full = compared.length >= mostCompared;
  return (
    <details class="compare" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Compare{compared.length > 0 && ` (${compared.length})`}</summary>
      {open && <>
        <ul>
          {choice.map(({ id, name }) => {
            const chosen = compared.includes(id);
            return (
              <li key={id}>
                <label class="check">
                  <input
                    type="checkbox" checked={chosen} disabled={!chosen && full}
                    onChange={() => onChange(chosen ? compared.filter((other) => other !== id) : [...compared, id])}
                  /> {name}
                </label>
              </li>
            );
          })}
        </ul>
        <Others sensor={sensor} overview={overview} compared={compared} onChange={onChange} />
        <p class="hint">Up to {mostCompared} at once.</p>
      </>}
    </details>
  );
}

/** Sensors of other rooms. */
function Others({ sensor, overview, compared, onChange }: Props) {
  const options = useMemo(() => {
    const rooms = new Map(overview?.rooms.map(({ id, name }) => [id, name]));
    const others = (overview?.sensors ?? []).filter(({ room_id }) => room_id !== sensor.room_id);
    return byName(others.map(({ id, name, room_id }) => ({ id, name: `${rooms.get(room_id) ?? ""}, ${name}` })));
  }, [overview, sensor.room_id]);
  if (options.length === 0) return null;
  const chosen = compared.find((id) => options.some((option) => option.id === id)) ?? "";
  const kept = compared.filter((id) => id !== chosen);
  return (
    <Select
      label="A sensor of another room" value={chosen}
      options={[["", "None"], ...options.map(({ id, name }) => [id, name] as const)]}
      onChange={(id) => onChange(id ? [...kept, id].slice(-mostCompared) : kept)}
    />
  );
}
