// One incident: how it is, who has it, what happened; beside it the room, and what to do.
import { Link, Redirect, useParams } from "wouter-preact";
import { useMemo } from "preact/hooks";
import { ApiError } from "../api/client";
import { useExcursions } from "../api/excursions";
import { useIncident, useOverview } from "../api/queries";
import { reasonOf } from "../logic/excursions";
import { capital } from "../logic/format";
import { endingOf, lasting, nowOf, titleOf, type IncidentDetail } from "../logic/incidents";
import { named } from "../logic/names";
import { roomsOf } from "../logic/overview";
import { Actions } from "../components/acting";
import { useNow } from "../components/clock";
import { ContactNotice, useLostContact } from "../components/contact";
import { Excursions } from "../components/excursions";
import { densityOf, RoomMap } from "../components/heatmap";
import { Holder, moveAlong } from "../components/incidents";
import { Instructions } from "../components/instructions";
import { RoomChart } from "../components/roomchart";
import { Failure, Loading } from "../components/states";
import { Timestamp } from "../components/timestamp";
import { useTitle } from "../components/title";

const events: Record<string, string> = {
  started: "Began", joined: "Another excursion joined", merged: "Another incident turned out to be part of it",
  came_back: "Came back", worse: "Got worse", taken: "Taken", handed_over: "Handed over", snoozed: "Snoozed",
  commented: "Comment", snooze_ended: "The snooze ended", unsilenced: "No longer in maintenance",
  given_back: "Given back", cleared: "Cleared", ended: "Over", seen: "Seen", withdrawn: "Withdrawn",
};

export default function IncidentPage() {
  const { id = "" } = useParams();
  const { data: incident, error, refetch } = useIncident(Number(id));
  const lost = useLostContact();
  useTitle(incident ? titleOf(incident) : "Incident");
  if (error instanceof ApiError && error.status === 404) { // unknown, or withdrawn by a late reading
    return <><h1>Incident not found</h1><p><Link href="/incidents">Go to the incidents</Link></p></>;
  }
  if (!incident) return error ? <Failure error={error} retry={() => void refetch()} />
    : <Loading what="the incident" />;
  if (incident.id !== Number(id)) return <Redirect to={`/incidents/${incident.id}`} replace />; // it is part of that
  return (
    <>
      <h1 aria-live="polite">{titleOf(incident)}</h1>
      <ContactNotice />
      {error && lost === null && <Failure error={error} retry={() => void refetch()} />}
      <div class="split">
        <div class="column">
          <Facts incident={incident} />
          <Timeline incident={incident} />
        </div>
        <div class="column"><Place incident={incident} /></div>
      </div>
      <Excursions of={{ incident_id: incident.id }} followed={incident.state !== "over"} />
    </>
  );
}

function Facts({ incident }: { incident: IncidentDetail }) {
  const { worst } = incident;
  const now = useNow(15_000);
  const over = incident.state === "over";
  const [ending, reason] = [endingOf(incident), reasonOf(worst)];
  return (
    <article class={`card facts ${over ? "" : incident.severity}`} onKeyDown={moveAlong} data-row tabIndex={-1}>
      <p class="says">
        {capital(over ? [reason, ending !== "cleared" && ending].filter(Boolean).join(", ")
          : nowOf(incident, now).join(", "))}
      </p>
      {!over && <p>{capital(reason)}</p>}
      {worst.kind === "silence" && !over && <p>Last reading: <Timestamp at={worst.last_time} /></p>}
      <p class="hint">
        {capital(incident.severity)}, {over ? "lasted" : "for"} {lasting(incident, now)}, {over ? "from" : "since"}{" "}
        <Timestamp at={incident.start_time} />
        {incident.end_time !== null && <> to <Timestamp at={incident.end_time} /></>}
      </p>
      <Holder incident={incident} now={now} />
      <div class="actions">
        <Actions incident={incident} />
        {worst.rule_id !== null && <Link href={`/rules?rule=${worst.rule_id}`}>Its rule</Link>}
      </div>
    </article>
  );
}

function Timeline({ incident }: { incident: IncidentDetail }) {
  const { timeline } = incident;
  const last = timeline.findLastIndex(({ event }) => event === "cleared");
  return (
    <section class="card" aria-labelledby="happened">
      <h2 id="happened">What happened</h2>
      <ol class="timeline" aria-label="What happened">
        {timeline.map(({ at, event, times, person, comment, calls }, i) => (
          <li key={i}>
            <Timestamp at={at} />
            <span>
              {times > 1 ? `Excursions joined, ${times} times`
                : i === last ? capital(endingOf(incident) || "cleared") : events[event] ?? event}
              {person && ` by ${named(person)}`}{comment && `: ${comment}`}
              {calls && <small> calls</small>}
            </span>
          </li>
        ))}
      </ol>
    </section>
  );
}

/** The room of the incident, with what to do there. */
function Place({ incident }: { incident: IncidentDetail }) {
  const { data: overview } = useOverview();
  const lost = useLostContact();
  const room = useMemo(() => overview && roomsOf(overview).find(({ id }) => id === incident.room_id),
    [overview, incident.room_id]);
  const { data, error, hasNextPage } = useExcursions({ incident_id: incident.id }, incident.state !== "over");
  if (!overview || !room || room.sensors.length === 0) return null;
  const density = densityOf(room.sensors.length);
  const quantity = incident.worst.quantity === "humidity" ? "humidity" : "temperature";
  const excursions = data?.pages.flatMap(({ items }) => items) ?? [];
  return (
    <>
      <RoomChart
        sensors={room.sensors} overview={overview} quantity={quantity}
        side={incident.worst.direction === "below" ? "below" : "above"}
        excursions={excursions}
        lacks={error && !data ? "Its forecasts could not be read."
          : hasNextPage && `Forecasts are those of its newest ${excursions.length} excursions.`}
      />
      <div class={`rooms ${density === "large" ? "medium" : density}${lost === null ? "" : " stale"}`}>
        <RoomMap room={room} overview={overview} density={density === "large" ? "medium" : density} />
      </div>
      <Instructions roomID={room.id} />
    </>
  );
}
