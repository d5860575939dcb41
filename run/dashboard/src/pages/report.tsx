// A month of a room, or of all, to print or to save: which share of the time it was within its
// range, who had each incident and how soon, and where readings were missing.
import { useQueries, useQuery, useQueryClient } from "@tanstack/preact-query";
import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { useSearchParams } from "wouter-preact";
import { allOf, api, messageOf, unwrap } from "../api/client";
import { save } from "../api/download";
import { keys, listLimit, useRooms } from "../api/queries";
import { reasonOf, type Excursion } from "../logic/excursions";
import {
  capital, count, decimal, duration, inUnit, plural, shownZone, timeIn, unitName,
} from "../logic/format";
import { causes, placeOf, type Incident } from "../logic/incidents";
import { byName } from "../logic/names";
import {
  holderOf, months, monthBounds, percent, reportCSV, worstFirst, type ReportedRoom, type ReportedSensor,
} from "../logic/report";
import { presetNames } from "../logic/rules";
import { Action } from "../components/action";
import { useNow } from "../components/clock";
import { Select } from "../components/form";
import { Empty, Failure, Loading, Notice } from "../components/states";
import { Timestamp } from "../components/timestamp";
import { useTitle } from "../components/title";

/** A month of readings of so many sensors is read at once, of so many rooms: a few seconds' work. */
const part = 50;
const atOnce = 2;

const classes = ["ashrae_a1", "ashrae_a2", "ashrae_a3", "ashrae_a4"] as const;

export default function ReportPage() {
  useTitle("Reports");
  const [search, setSearch] = useSearchParams();
  const set = (name: string, value: string) => setSearch((before) => {
    const next = new URLSearchParams(before);
    if (value) next.set(name, value);
    else next.delete(name);
    return next;
  }, { replace: true });
  const now = useNow(60_000);
  const zone = shownZone();
  const choice = months(now, 24, zone);
  const month = choice.find((candidate) => candidate === search.get("month")) ?? choice[0] ?? "";
  const allowable = classes.find((candidate) => candidate === search.get("allowable")) ?? "ashrae_a1";
  const [start, end] = useMemo(() => monthBounds(month, zone), [month, zone]);
  const rooms = useRooms();
  const roomID = Number(search.get("room")) || 0;
  const shown = rooms.data?.filter(({ id }) => roomID === 0 || id === roomID) ?? [];
  const queries = useQueryClient();
  /** Of rooms that are being read, how many sensors are. */
  const [read, setRead] = useState<Record<string, number>>({});
  let waiting = 0;
  const range = { start_time: new Date(start).toISOString(), end_time: new Date(end).toISOString() };
  const reportKey = (id: number) => ["report", id, start, end, allowable];
  const reports = useQueries({
    queries: shown.map(({ id }) => {
      const queryKey = reportKey(id);
      const settled = (queries.getQueryState(queryKey)?.status ?? "pending") !== "pending";
      return {
        queryKey, staleTime: 10 * 60_000, enabled: settled || waiting++ < atOnce,
        // What is too much to be read in time is so again.
        retry: false,
        queryFn: ({ signal }: { signal: AbortSignal }): Promise<ReportedSensor[]> => allOf(
          (after) =>
            api.GET("/api/v1/data/report/{room_id}", {
              signal, params: { path: { room_id: id }, query: { ...range, allowable, limit: part, after } },
            }),
          (found) => setRead((before) => ({ ...before, [queryKey.join()]: found.length })),
        ),
      };
    }),
  });
  const times = useQueries({
    queries: shown.map(({ id }, i) => ({
      queryKey: ["room-time", id, start, end, allowable], staleTime: 10 * 60_000, retry: false,
      // After the sensors of the room, so that two rooms at most are read at once.
      enabled: reports[i]?.data !== undefined,
      queryFn: ({ signal }: { signal: AbortSignal }) => unwrap(api.GET("/api/v1/data/report/{room_id}/time", {
        signal, params: { path: { room_id: id }, query: { ...range, allowable } },
      })),
    })),
  });
  const told = { ...range, room_id: roomID || undefined, limit: listLimit };
  const incidents = useQuery<Incident[]>({
    queryKey: [...keys.incidents, told], staleTime: 60_000,
    select: (all) => all.filter(({ drill }) => !drill),
    queryFn: ({ signal }) =>
      allOf((after) => api.GET("/api/v1/incidents", { signal, params: { query: { ...told, after } } })),
  });
  const silences = useQuery<Excursion[]>({
    queryKey: [...keys.excursions, "silence", told], staleTime: 60_000,
    queryFn: ({ signal }) => allOf((after) =>
      api.GET("/api/v1/excursions", { signal, params: { query: { ...told, kind: "silence", after } } })),
  });
  const failed = [
    ...reports.map((report, i) => ({ ...report, name: shown[i]?.name ?? "" })),
    ...times.map((time, i) => ({ ...time, name: `The time of ${shown[i]?.name ?? ""}` })),
    { ...incidents, name: "The list of incidents" }, { ...silences, name: "The list of silences" },
  ].filter(({ error }) => error);
  const done = worstFirst(shown.flatMap(({ id, name }, i): ReportedRoom[] => (
    reports[i]?.data ? [{ id, name, sensors: byName(reports[i].data), time: times[i]?.data }] : []
  )));
  const complete = done.length > 0 && done.length === shown.length && times.every(({ data }) => data)
    && incidents.data !== undefined && silences.data !== undefined;
  const nothing = rooms.data && shown.length === 0;
  const waits = !complete && (nothing ? "There is nothing to report."
    : failed.length > 0 || rooms.error ? "A part of the report is missing." : "The report is not whole yet.");
  const title = `${roomID === 0 ? "All rooms" : (shown[0]?.name ?? "Room")}, `
    + `${timeIn(start + 86_400_000, { month: "long", year: "numeric" })}`;
  const sensorsRead = shown.reduce((sum, { id }) => sum + (read[reportKey(id).join()] ?? 0), 0);
  return (
    <>
      <div class="heading">
        <h1>Reports</h1>
        <Action waits={waits} onClick={() => print()}>Print</Action>
        <Action waits={waits} onClick={() =>
          save(new Blob([reportCSV(done, incidents.data ?? [], silences.data ?? [])], { type: "text/csv" }),
            `report-${month}.csv`)}>Download CSV</Action>
      </div>
      <div class="filters">
        <Select label="Month" value={month} onChange={(chosen) => set("month", chosen)}
          options={choice.map((value) =>
            [value, timeIn(Date.parse(`${value}-15`), { month: "long", year: "numeric" })] as const)} />
        <Select label="Room" value={roomID} onChange={(chosen) => set("room", chosen ? String(chosen) : "")}
          options={[[0, "All rooms"], ...(rooms.data ?? []).map(({ id, name }) => [id, name] as const)]} />
        <Select label="Allowable range" value={allowable}
          onChange={(chosen) => set("allowable", chosen === "ashrae_a1" ? "" : chosen)}
            options={classes.map((value) => [value, presetNames[value]?.name ?? value] as const)} />
      </div>
      {rooms.error && <Failure error={rooms.error} retry={() => void rooms.refetch()} />}
      {failed.map(({ name, error, refetch }) => (
        <Notice key={name} text={`${name} is missing. ${messageOf(error)}`} retry={() => void refetch()} />
      ))}
      {!rooms.data && !rooms.error && <Loading what="the report" />}
      {reports.some(({ isPending }) => isPending) && <Loading
        what={`the report, ${done.length} of ${plural(shown.length, "room")}, ${plural(sensorsRead, "sensor")}`}
      />}
      {nothing && <Empty title="Nothing to report">
        <p>{roomID === 0 ? "There is no room yet." : "This room is gone."}</p>
      </Empty>}
      {done.length > 0 && (
        <section class="card report" aria-labelledby="sum">
          <h2 id="sum">{title}</h2>
          <Shares rooms={done} incidents={incidents.data} />
          <p class="hint">
            {done.length < shown.length && `${count(done.length)} of ${plural(shown.length, "room")} so far. `}
            A minute counts as outside if any sensor of the room was. Months are those of {zone}.
          </p>
          <details>
            <summary>Sensors</summary>
            {done.map((room) => <RoomTable key={room.id} {...room} />)}
          </details>
        </section>
      )}
      {done.length > 0 && incidents.data && (
        <Listed
          title="Incidents"
          head={["Where", "Cause", "Severity", "Began", "Ended", "Worst", "Who had it", "Taken after"]}
          rows={incidents.data.map((incident) => [
            placeOf(incident), causes[incident.cause], incident.severity,
            <Timestamp at={incident.start_time} />, endOf(incident),
            <>{capital(reasonOf(incident.worst))}<small>
              {incident.worst.sensor_name ?? incident.worst.sensor_id}
            </small></>,
            <>{holderOf(incident) || "Nobody"}{incident.comment && <small>{incident.comment}</small>}</>,
            incident.taken_at === null ? "–"
              : duration(Date.parse(incident.taken_at) - Date.parse(incident.start_time)),
          ])}
        />
      )}
      {done.length > 0 && silences.data && (
        <Listed title="Silences" head={["Sensor", "Room", "Began", "Ended", "Its readings"]}
          rows={silences.data.map((silence) => [
            silence.sensor_name ?? silence.sensor_id, silence.room_name, <Timestamp at={silence.start_time} />,
            endOf(silence), silence.late ? "delivered late" : "missing",
          ])} />
      )}
    </>
  );
}

const endOf = ({ end_time }: { end_time: string | null }) =>
  (end_time === null ? "lasts" : <Timestamp at={end_time} />);

function Listed({ title, head, rows }: { title: string; head: string[]; rows: ComponentChildren[][] }) {
  return (
    <section class="card listed" aria-label={title}>
      <h2>{title}</h2>
      {rows.length === 0 ? <p class="hint">None.</p> : (
        <div class="scroll" tabIndex={0} role="group" aria-label={title}>
          <table class="stacked">
            <thead><tr>{head.map((name) => <th key={name} scope="col">{name}</th>)}</tr></thead>
            <tbody>{rows.map((cells, i) =>
              <tr key={i}>{cells.map((cell, at) =>
                <td key={at} class="wraps" data-name={at > 0 ? head[at] : undefined}>{cell}</td>)}</tr>)}</tbody>
          </table>
        </div>
      )}
    </section>
  );
}

const spell = (minutes: number) =>
  (minutes === 0 ? "none" : minutes < 1 ? "under 1 min" : duration(Math.round(minutes) * 60_000));

/** Each room: the share of time within its range, how much of the time is known, and its incidents. */
function Shares({ rooms, incidents }: { rooms: readonly ReportedRoom[]; incidents: readonly Incident[] | undefined }) {
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label="Share of time">
      <table class="numbers">
        <thead>
          <tr>
            <th scope="col">Room</th><th scope="col">Within recommended</th><th scope="col">Outside recommended</th>
            <th scope="col">Outside allowable</th><th scope="col">Coverage</th><th scope="col">Incidents</th>
          </tr>
        </thead>
        <tbody>
          {rooms.map(({ id, name, time }) => (
            <tr key={id}>
              <th scope="row">{name}</th>
              <td>{time ? percent(time.minutes_reported - time.minutes_outside_recommended, time.minutes_reported)
                : "…"}</td>
              <td>{time ? spell(time.minutes_outside_recommended) : "…"}</td>
              <td>{time ? spell(time.minutes_outside_allowable) : "…"}</td>
              <td>{time ? percent(time.minutes_reported, time.minutes) : "…"}</td>
              <td>{incidents ? count(incidents.filter(({ room_id }) => room_id === id).length) : "…"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function RoomTable({ name, sensors }: ReportedRoom) {
  const degrees = (value: number | null) => decimal(value === null ? null : inUnit(value, "°C"));
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label={name}>
      <table class="numbers">
        <caption>{name}</caption>
        <thead>
          <tr>
            <th scope="col">Sensor</th><th scope="col">Outside recommended</th><th scope="col">Outside allowable</th>
            <th scope="col">Reported</th><th scope="col">Lowest {unitName("°C")}</th>
            <th scope="col">Highest {unitName("°C")}</th>
          </tr>
        </thead>
        <tbody>
          {sensors.map((sensor) => (
            <tr key={sensor.sensor_id}>
              <th scope="row">{sensor.name}{sensor.calibration_overdue
                && <small>Calibration overdue since {sensor.calibration_due}</small>}</th>
              <td>{spell(sensor.minutes_outside_recommended)}</td><td>{spell(sensor.minutes_outside_allowable)}</td>
              <td>{spell(sensor.minutes_reported)}</td>
              <td>{degrees(sensor.min_temperature)}</td><td>{degrees(sensor.max_temperature)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
