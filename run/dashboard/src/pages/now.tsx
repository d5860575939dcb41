// What is wrong, where, how bad, which way it goes and who has it; below, every room.
import { useMemo, useState } from "preact/hooks";
import { Link } from "wouter-preact";
import { useOverview } from "../api/queries";
import { serviceTime } from "../api/time";
import { capital, plural, timeNear } from "../logic/format";
import { nowOf, titleOf, type Incident } from "../logic/incidents";
import { inTrouble, roomsOf, sentenceOf, type Overview } from "../logic/overview";
import { Actions } from "../components/acting";
import { chunk } from "../components/chunk";
import { useNow } from "../components/clock";
import { ContactNotice, useLostContact } from "../components/contact";
import { densityOf, Legend, RoomMap } from "../components/heatmap";
import { Holder, marks, moveAlong } from "../components/incidents";
import { NotAllJudged } from "../components/judged";
import { May } from "../components/may";
import { memo } from "../components/memo";
import { FirstSteps } from "../components/steps";
import { Empty, Failure, Loading, StatusMark, useLeaving } from "../components/states";
import { useTitle } from "../components/title";
import { useTurn } from "../components/turns";

const Curve = chunk("curve", () => import("../components/curve"), <div class="curve" />);
const AddRoom = chunk("form", () => import("../components/addroom"));

export function NowPage() {
  useTitle("Now");
  const { data, error, refetch } = useOverview();
  const lost = useLostContact();
  const [adding, setAdding] = useState(false);
  const others = useMemo(() => data?.incidents.filter(({ id }) => id !== data.sentence.incident_id) ?? [], [data]);
  return (
    <>
      <h1 class="unseen">Now</h1>
      <ContactNotice />
      {!data && (error ? <Failure error={error} retry={() => void refetch()} /> : <Loading what="your rooms" />)}
      {data && data.rooms.length === 0 && (
        <Empty title="No server room yet">
          <May role="admin">
            <button type="button" class="primary" onClick={() => setAdding(true)}>Add room</button>
            <p><Link href="/setup">Or follow the checklist</Link>: gateway, sensors, limits, who is woken.</p>
          </May>
        </Empty>
      )}
      {data && data.sensors.length + data.incidents.length > 0 && <Sentence overview={data} lost={lost} />}
      {others.length > 0 && <Lasting incidents={others} stale={lost !== null} />}
      {data && data.rooms.length > 0 && <>
        <div class="toolbar">
          <NotAllJudged {...data} />
          <span class="actions">
            <FirstSteps overview={data} />
            {data.sensors.length > 0 && <Legend />}
          </span>
        </div>
        <Rooms overview={data} stale={lost !== null} />
      </>}
      {adding && <AddRoom onClose={() => setAdding(false)} />}
    </>
  );
}

/** The answer to "is everything all right?", as of when contact was lost. */
export function Sentence({ overview, lost = null, wall }: {
  overview: Overview; lost?: number | null; wall?: boolean;
}) {
  const { sentence: { tone, incident_id: about, sensor_id: sensor }, incident_counts: { to_be_seen: open } } = overview;
  const incident = overview.incidents.find(({ id }) => id === about);
  const mark = incident ? marks[incident.cause] : tone === "quiet" ? "ok" : tone === "note" ? "late" : "alert";
  const stale = lost !== null;
  const [said, values, who] = sentenceOf(overview, stale);
  const to = about !== null ? `/incidents/${about}` : sensor && `/sensors/${encodeURIComponent(sensor)}`;
  return (
    <section class={`sentence ${tone}${stale ? " stale" : ""}`} aria-live={stale ? "off" : "polite"}>
      <article onKeyDown={moveAlong}>
        <p class="says">
          <StatusMark kind={mark} /> {tone === "critical" && <span class="unseen">{tone}: </span>}
          {stale && `As of ${timeNear(lost, serviceTime())}: `}
          {said}<span aria-live="off">{values}</span>{who}
        </p>
        {!wall && (
          <p class="actions">
            {incident && <Actions incident={incident} short />}
            {to && <Open to={to} />}
            {open > (incident?.state === "open" ? 1 : 0)
              && <Link href="/incidents">{plural(open, "incident")} nobody has seen</Link>}
          </p>
        )}
      </article>
      {incident && <Curve incident={incident} />}
      {overview.probe.late && tone !== "note" && (
        <p class="hint">
          {overview.past ?? "The service is late: what you see may be old, and no sensor counts as silent."}
        </p>
      )}
    </section>
  );
}

function Open({ to }: { to: string }) {
  return <span ref={useLeaving()}><Link href={to} class="button" data-row>Open</Link></span>;
}

/** So many leave room for the rooms, and are drawn at once. */
const firsts = 6;

function Lasting({ incidents, stale }: { incidents: readonly Incident[]; stale: boolean }) {
  const now = useNow(15_000);
  return (
    <section aria-label="Further incidents" class={stale ? "stale" : undefined} onKeyDown={moveAlong}>
      <ul class="lasting">
        {incidents.slice(0, firsts).map((incident) =>
          <li key={incident.id}><Card incident={incident} now={now} /></li>)}
      </ul>
      {incidents.length > firsts && (
        <p><Link href="/incidents">{plural(incidents.length - firsts, "more incident")}</Link></p>
      )}
    </section>
  );
}

function Card({ incident, now }: { incident: Incident; now: number }) {
  return (
    <article class={`incident-card ${incident.severity} ${incident.state}`} aria-label={titleOf(incident)}
      ref={useLeaving()}>
      <h2>
        <StatusMark kind={marks[incident.cause]} />{" "}
        <Link href={`/incidents/${incident.id}`} class="cover" data-row>{titleOf(incident)}</Link>
        {incident.severity === "critical" && <span class="unseen">, critical</span>}
      </h2>
      <p>{capital(nowOf(incident, now).join(", "))}</p>
      <Curve incident={incident} />
      <div class="actions"><Holder incident={incident} now={now} /><Actions incident={incident} short /></div>
    </article>
  );
}

function Rooms({ overview: newest, stale }: { overview: Overview; stale: boolean }) {
  const overview = useTurn(newest);
  return overview && <Maps overview={overview} stale={stale} />;
}

const Maps = memo(function Maps({ overview, stale }: { overview: Overview; stale: boolean }) {
  const rooms = useMemo(() => roomsOf(overview), [overview]);
  const total = overview.sensors.length;
  const usual = densityOf(total);
  return (
    <div class={`rooms ${usual}${stale ? " stale" : ""}`}
      style={{ "--total": `${Math.max(1, total)}`, "--rooms": `${rooms.length}` }}>
      {rooms.map((room, i) => {
        const density = i === 0 && inTrouble(room) && usual === "small" ? "medium" : usual;
        return <RoomMap key={room.id} room={room} overview={overview} density={density} />;
      })}
    </div>
  );
});
