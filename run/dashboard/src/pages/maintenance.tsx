// Maintenance windows: a calendar of the next weeks, and forms.
import { useQuery } from "@tanstack/preact-query";
import { useMemo, useState } from "preact/hooks";
import { api, ApiError, unwrap, type MaintenanceScope } from "../api/client";
import { keys, pollSlowly, refresh, useMaintenance, useOverview, useSensorNames } from "../api/queries";
import { serviceTime } from "../api/time";
import { reasonOf } from "../logic/excursions";
import { dayIn, duration, localTime, shownZone, timeOfDay } from "../logic/format";
import { titleOf, type Incident } from "../logic/incidents";
import {
  clocksChange, inputInstant, inputValue, occurrences, recurrence, weekdays, type Occurrence, type Window,
} from "../logic/maintenance";
import { useNow } from "../components/clock";
import { Confirm, Dialog } from "../components/dialog";
import { Field, Form, Select } from "../components/form";
import { May } from "../components/may";
import { RoomChoice, RoomNames, SensorChoice } from "../components/scope";
import { Empty, Failure, Loading, StatusMark } from "../components/states";
import { useTitle } from "../components/title";

const day = 86_400_000;
const ahead = 28 * day;

export default function MaintenancePage() {
  useTitle("Maintenance");
  const now = useNow(30_000);
  const { data, error, refetch } = useMaintenance();
  const [editing, setEditing] = useState<Window | "new" | null>(null);
  const [ending, setEnding] = useState<Window | null>(null);
  const coming = useMemo(() => occurrences(data ?? [], now, now + ahead), [data, now]);
  const known = new Set(coming.map(({ window }) => window.id));
  const later = (data ?? []).filter(({ id, next_start }) => !known.has(id) && next_start !== null)
    .map((window): Occurrence => {
      const start = Date.parse(window.next_start ?? "");
      return { window, start, end: start + window.duration_s * 1000 };
    }).sort((a, b) => a.start - b.start);
  const row = { now, onChange: setEditing, onEnd: setEnding };
  return (
    <>
      <div class="heading">
        <h1>Maintenance</h1>
        <May role="operator">
          <button type="button" class="primary" onClick={() => setEditing("new")}>Add window</button>
        </May>
      </div>
      <p class="lead">
        Incidents inside a window are kept and marked as silenced. What is still going on when it ends is open at once.
      </p>
      {error && <Failure error={error} retry={() => void refetch()} />}
      {!data && !error && <Loading what="maintenance windows" />}
      {data && coming.length + later.length === 0 && <Empty title="No maintenance ahead">
        <p>Add a window before work that makes a room warm or a sensor silent.</p>
      </Empty>}
      {coming.length > 0 && <Calendar title="Next four weeks" coming={coming} {...row} />}
      {later.length > 0 && <Calendar title="Later" coming={later} {...row} />}
      {editing && <WindowForm window={editing === "new" ? undefined : editing} onClose={() => setEditing(null)} />}
      {ending && <EndWindow window={ending} onClose={() => setEnding(null)} />}
    </>
  );
}

const dateOf = (time: number) => dayIn(time, { weekday: "short" });

function Calendar({ title, coming, now, onChange, onEnd }: {
  title: string; coming: Occurrence[]; now: number; onChange: (window: Window) => void; onEnd: (window: Window) => void;
}) {
  const nameOf = useSensorNames();
  return (
    <section class="card" aria-label={title}>
      <h2>{title}</h2>
      <ol class="calendar">
        {coming.map(({ window, start, end }, i) => {
          const shown = dateOf(start);
          const what = window.comment ?? "Maintenance";
          // A window is changed and deleted as a whole: where it comes first.
          const first = coming.findIndex((other) => other.window.id === window.id) === i;
          return (
            <li key={`${window.id} ${start}`} class={first ? "" : "again"}>
              <span class="day">{i > 0 && dateOf(coming[i - 1]?.start ?? 0) === shown ? "" : shown}</span>
              <span>{timeOfDay(start)}–{dateOf(end) === shown ? timeOfDay(end) : localTime(end)}</span>
              <span class="what">
                {first ? <strong>{what}</strong> : what}
                {first && <small>
                  {window.sensor_id === null ? <RoomNames ids={window.room_ids} />
                    : <>
                      Sensor {nameOf(window.sensor_id)}
                    </>} · {duration(window.duration_s * 1000)}, {recurrence(window)} · by {window.created_by}
                </small>}
              </span>
              <span>{start <= now && <span class="badge"><StatusMark kind="late" />Under way</span>}</span>
              <span class="actions">{first && <May role="operator">
                <button type="button" class="quiet" onClick={() => onChange(window)}>
                  Change<span class="unseen"> {what}, {shown}</span>
                </button>
                <button type="button" class="quiet" onClick={() => onEnd(window)}>
                  {start <= now ? "End" : "Delete"}<span class="unseen"> {what}, {shown}</span>
                </button>
              </May>}</span>
            </li>
          );
        })}
      </ol>
    </section>
  );
}

function WindowForm({ window, onClose }: { window: Window | undefined; onClose: () => void }) {
  const [zone, setZone] = useState(window && window.weekdays.length > 0 ? window.time_zone : shownZone());
  const [given] = useState(() =>
    (window ? Date.parse(window.start_time) : Math.ceil(serviceTime() / 3_600_000) * 3_600_000));
  const [start, setStart] = useState(() => inputValue(given, zone));
  const [hours, setHours] = useState(String((window?.duration_s ?? 7200) / 3600));
  const [days, setDays] = useState<readonly number[]>(window?.weekdays ?? []);
  const [repeats, setRepeats] = useState(days.length > 0);
  const [until, setUntil] = useState(() => (window?.until ? inputValue(Date.parse(window.until), zone) : ""));
  const [comment, setComment] = useState(window?.comment ?? "");
  const { data: overview } = useOverview();
  const [rooms, setRooms] = useState(() =>
    window?.room_ids.length === 0 ? (overview?.sensors ?? []).filter(({ id }) => id === window.sensor_id)
      .map(({ room_id }) => room_id) : (window?.room_ids ?? []));
  const [sensorID, setSensorID] = useState(window?.sensor_id ?? "");
  const scope = sensorID ? { sensor_id: sensorID } : { room_ids: rooms };
  const silenced = useSilenced(sensorID || rooms.length > 0 ? scope : null);
  const [asking, setAsking] = useState(false);
  const zones = [...new Set([zone, shownZone(), "UTC", ...Intl.supportedValuesOf("timeZone")])]
    .map((name) => [name, name] as const);
  const save = async (confirm: boolean) => {
    const body = {
      start_time: inputInstant(start, zone, given), duration_s: Number(hours) * 3600, time_zone: zone,
      weekdays: repeats ? [...days] : [],
      ...(repeats && until && { until: inputInstant(until, zone, Date.parse(window?.until ?? "")) }),
      ...(comment.trim() && { comment: comment.trim() }), ...scope, confirm,
    };
    await unwrap(window
      ? api.PUT("/api/v1/maintenance/{window_id}", { params: { path: { window_id: window.id } }, body })
      : api.POST("/api/v1/maintenance", { body }));
    await refresh(keys.live);
    onClose();
  };
  return (
    <>
      {/* Over the form, where Escape goes on keeping what was typed, and before it: it closes first. */}
      {asking && <Confirm title="Silence what is critical now?" action="Silence it" onConfirm={() => save(true)}
        onClose={() => setAsking(false)}>
        <Silenced incidents={silenced.data?.incidents.filter(({ severity }) => severity === "critical") ?? []} />
      </Confirm>}
      <Dialog title={window ? "Change window" : "Add maintenance window"} onClose={onClose} wide>
        <Form
          action={window ? "Save window" : "Add window"} onCancel={onClose}
          onSubmit={async () => {
            try {
              await save(false);
            } catch (refused) {
              if (!(refused instanceof ApiError && refused.status === 409)) throw refused;
              await silenced.refetch();
              setAsking(true);
            }
          }}
        >
          <Field label="What for" name="comment" value={comment} onInput={setComment} maxLength={500} required={false}
            hint="For example “Filters are changed”." autoFocus />
          <RoomChoice chosen={rooms} onChange={(chosen) => { setRooms(chosen); setSensorID(""); }} required />
          {rooms.length === 1 && <SensorChoice roomID={rooms[0] ?? 0} sensorID={sensorID} onChange={setSensorID} />}
          <div aria-live="polite">
            {silenced.data && <Silenced incidents={silenced.data.incidents} />}
            {silenced.error && <Failure error={silenced.error} retry={() => void silenced.refetch()} />}
          </div>
          <div class="pair">
            <Field label={repeats ? "First begins" : "Begins"} name="start" type="datetime-local"
              value={start} onInput={setStart} hint={clocksChange(start, zone, given)} />
            <Field label="Lasts, hours" name="hours" type="number" min="0.05" max="168" step="any"
              value={hours} onInput={setHours} />
          </div>
          <Select label="Time zone" value={zone} onChange={setZone} options={zones} />
          <label class="check"><input type="checkbox" checked={repeats}
            onChange={(event) => setRepeats(event.currentTarget.checked)} /> Every week</label>
          {repeats && (
            <fieldset class="weekdays">
              <legend>On</legend>
              {[1, 2, 3, 4, 5, 6, 0].map((index) => (
                <label key={index} class="check">
                  <input type="checkbox" checked={days.includes(index)} required={days.length === 0}
                    onChange={() => setDays(days.includes(index) ? days.filter((other) => other !== index)
                      : [...days, index].sort())} /> {weekdays[index]}
                </label>
              ))}
            </fieldset>
          )}
          {repeats && <Field label="Until" name="until" type="datetime-local" value={until} onInput={setUntil}
            required={false} hint={clocksChange(until, zone, Date.parse(window?.until ?? ""))
              ?? "Empty: for ever. It follows the clocks of its zone, summer and winter."} />}
        </Form>
      </Dialog>
    </>
  );
}

/** What a window would silence if it were under way now. */
function Silenced({ incidents }: { incidents: readonly Incident[] }) {
  if (incidents.length === 0) return <p class="hint">No incident is going on there now.</p>;
  return (
    <>
      <p><strong>Would silence now:</strong></p>
      <ul class="plain">{incidents.map((incident) => (
        <li key={incident.id} class={incident.severity === "critical" ? "error" : undefined}>
          {titleOf(incident)}: {incident.worst.sensor_name
            ?? incident.worst.sensor_id}, {reasonOf(incident.worst)}
        </li>
      ))}</ul>
    </>
  );
}

function EndWindow({ window, onClose }: { window: Window; onClose: () => void }) {
  const end = async () => {
    await unwrap(api.DELETE("/api/v1/maintenance/{window_id}", { params: { path: { window_id: window.id } } }));
    await refresh(keys.live);
    onClose();
  };
  return (
    <Confirm title={`End “${window.comment ?? "Maintenance"}”?`} action="End window" onConfirm={end} onClose={onClose}>
      <p>It does not come again{window.weekdays.length > 0
        && `, on no ${recurrence(window).replace("every ", "")}`}. What it silenced until now stays silenced.</p>
    </Confirm>
  );
}

/** What a window would silence if it were under way now, by the service; nothing for a window of no room. */
function useSilenced(of: MaintenanceScope | null) {
  return useQuery({
    queryKey: [...keys.maintenance, of], enabled: of !== null, staleTime: 0, refetchInterval: pollSlowly,
    queryFn: () => unwrap(api.POST("/api/v1/maintenance/preview", { body: of as MaintenanceScope })),
  });
}
