// One incident: how it is, who has it, what happened, and its excursions.
import { Redirect, useParams } from "wouter-preact";
import { useState } from "preact/hooks";
import { useIncident } from "../api/queries";
import { capital, inWords } from "../logic/format";
import { lasting, nowOf, titleOf } from "../logic/incidents";
import { useNow } from "../components/clock";
import { ContactNotice } from "../components/contact";
import { Excursions } from "../components/excursions";
import { Act, Actions, Holder } from "../components/incidents";
import { Failure, Loading } from "../components/states";
import { Timestamp } from "../components/timestamp";
import { useTitle } from "../components/title";

const events: Record<string, string> = {
  started: "Began", joined: "Another sensor joined", merged: "Another incident turned out to be part of it", came_back: "Came back", worse: "Got worse", taken: "Taken",
  handed_over: "Handed over", snoozed: "Snoozed", commented: "Comment", snooze_ended: "The snooze ended", given_back: "Given back", cleared: "Cleared", ended: "Over", seen: "Seen",
  withdrawn: "Withdrawn",
};

export default function IncidentPage() {
  const { id = "" } = useParams();
  const { data: incident, error, refetch } = useIncident(Number(id));
  const now = useNow(15_000);
  const [acting, setActing] = useState<Parameters<typeof Act>[0]["action"] | null>(null);
  useTitle(incident ? titleOf(incident) : "Incident");
  if (!incident) return error ? <Failure error={error} retry={() => void refetch()} /> : <Loading what="the incident" />;
  if (incident.id !== Number(id)) return <Redirect to={`/incidents/${incident.id}`} replace />; // it is part of that
  const over = incident.state === "over";
  return (
    <>
      <div class="heading"><h1>{titleOf(incident)}</h1></div>
      <ContactNotice />
      <section class={`card incident-detail ${over ? "" : incident.severity}`}>
        <div>
          <p>{inWords(incident.worst.reason)}</p>
          {!over && <p><strong>{capital(nowOf(incident).join(", "))}</strong></p>}
          <p class="hint">{incident.severity}, {over ? "lasted" : "for"} {lasting(incident, now)}, {over ? "from" : "since"} <Timestamp at={incident.start_time} />{incident.end_time !== null && <> to <Timestamp at={incident.end_time} /></>}</p>
          <Holder incident={incident} now={now} />
          <div class="actions"><Actions incident={incident} act={({ action }) => setActing(action)} /></div>
        </div>
        <ol class="timeline" aria-label="What happened">
          {incident.timeline.map(({ at, event, person, comment, calls }, i) => (
            <li key={i}>
              <Timestamp at={at} />
              <span>{events[event] ?? event}{person && <> by <strong>{person}</strong></>}{comment && `: ${comment}`}{calls && <small> calls</small>}</span>
            </li>
          ))}
        </ol>
      </section>
      <Excursions of={{ incident_id: incident.id }} followed={!over} />
      {acting && <Act incident={incident} action={acting} onClose={() => setActing(null)} />}
    </>
  );
}
