// Every room at a glance, worst first.
import { memo } from "preact/compat";
import { useMemo, useState } from "preact/hooks";
import { Link } from "wouter-preact";
import { useOverview } from "../api/queries";
import { plural } from "../logic/format";
import { roomsOf, sentenceOf, type Overview } from "../logic/overview";
import { ContactNotice, useLostContact } from "../components/contact";
import { AddRoom } from "../components/addroom";
import { densityOf, Legend, RoomMap } from "../components/heatmap";
import { Act, Actions, IncidentTable, type Acting } from "../components/incidents";
import { NotAllJudged } from "../components/judged";
import { FirstSteps } from "../components/steps";
import { Empty, Failure, Loading, StatusMark } from "../components/states";
import { useTitle } from "../components/title";
import { useTurn } from "../components/turns";

export function OverviewPage() {
  useTitle("Overview");
  const { data, error, refetch } = useOverview();
  const lost = useLostContact();
  const [adding, setAdding] = useState(false);
  return (
    <>
      <h1 class="unseen">Overview</h1>
      <ContactNotice />
      {!data && (error ? <Failure error={error} retry={() => void refetch()} /> : <Loading what="your rooms" />)}
      {data && data.rooms.length === 0 && (
        <Empty title="Add your first server room">
          <p>A room holds the sensors that measure in it.</p>
          <button type="button" class="primary" onClick={() => setAdding(true)}>Add room</button>
          <p><Link href="/setup">Or be led through it</Link>: gateway, sensors, limits.</p>
        </Empty>
      )}
      {data && data.sensors.length > 0 && lost === null && <><Sentence overview={data} /><NotAllJudged {...data} /></>}
      {data && data.incidents.length > 1 && <div class={lost === null ? undefined : "stale"}><Lasting incidents={data.incidents} /></div>}
      {data && data.rooms.length > 0 && (
        <div class="toolbar">
          {data.sensors.length > 0 && <Legend />}
          <span class="actions">
            <FirstSteps overview={data} />
            <Link href="/wall" onClick={() => void document.documentElement.requestFullscreen?.().catch(() => undefined)}>Show on a wall</Link>
            <button type="button" onClick={() => setAdding(true)}>Add room</button>
          </span>
        </div>
      )}
      {data && data.rooms.length > 0 && <Rooms overview={data} stale={lost !== null} />}
      {adding && <AddRoom onClose={() => setAdding(false)} />}
    </>
  );
}

/** The answer to "is everything all right?". */
export function Sentence({ overview }: { overview: Overview }) {
  const { sentence: { tone, incident_id: about, sensor_id: sensor }, incident_counts: { to_be_seen: open } } = overview;
  const [acting, setActing] = useState<Acting | null>(null);
  const incident = overview.incidents.find(({ id }) => id === about);
  return (
    <section class={`sentence ${tone}`} aria-live="polite">
      <p><StatusMark kind={tone === "quiet" ? "ok" : tone === "note" ? "late" : "alert"} /> {sentenceOf(overview)}</p>
      <p class="actions">
        {incident && <Actions incident={incident} act={setActing} short />}
        {about !== null ? <Link href={`/incidents/${about}`}>Look at it</Link> : sensor !== null && <Link href={`/sensors/${encodeURIComponent(sensor)}`}>Look at it</Link>}
        {open > 0 && <Link href="/incidents">{plural(open, "incident")} to be seen</Link>}
      </p>
      {acting && <Act {...acting} onClose={() => setActing(null)} />}
      {overview.probe.late && tone !== "note" && <p class="hint">The service is late: what you see may be old, and no sensor counts as silent.</p>}
    </section>
  );
}

/** So many leave room for the rooms, and are drawn at once. */
const firsts = 8;

function Lasting({ incidents }: Pick<Overview, "incidents">) {
  const shown = useMemo(() => [{ key: "lasting", title: "", incidents: incidents.slice(0, firsts) }], [incidents]);
  return (
    <>
      <IncidentTable sections={shown} />
      {incidents.length > firsts && <p><Link href="/incidents">{plural(incidents.length - firsts, "more incident")}</Link></p>}
    </>
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
    <div class={`rooms ${usual}${stale ? " stale" : ""}`} style={{ "--total": `${Math.max(1, total)}` }}>
      {rooms.map((room, i) => {
        const worst = i === 0 && (room.state === "critical" || room.state === "silent" || room.state === "warning");
        return <RoomMap key={room.id} room={room} overview={overview} density={worst && usual === "small" ? "medium" : usual} />;
      })}
    </div>
  );
});
