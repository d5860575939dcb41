// Alarm drills: start one, and see how far it came.
import { useQuery } from "@tanstack/preact-query";
import { useState } from "preact/hooks";
import { Link } from "wouter-preact";
import { api, unwrap } from "../api/client";
import type { components } from "../api/schema";
import { refresh, useOverview, useRules } from "../api/queries";
import { Dialog } from "../components/dialog";
import { Form, Select } from "../components/form";
import { May } from "../components/may";
import { Secret } from "../components/secret";
import { Empty, Failure, Loading, StatusMark } from "../components/states";
import { Timestamp } from "../components/timestamp";
import { useTitle } from "../components/title";
import { plural } from "../logic/format";
import { condition } from "../logic/rules";

type Drill = components["schemas"]["Drill"];
type Stage = Drill["stages"][number]["stage"];

const key = ["drills"];

/** What a stage is called, and what to look at when it is the first that is missing. */
const stages: Record<Stage, [name: string, failed: string]> = {
  sent: ["sent", "Nobody ran the command on the gateway's machine."],
  published: ["published", "Pub/Sub did not take the message: look at the uplink, and at the service."],
  ingested: ["ingested", "The service did not store readings in time."],
  judged: ["judged", "The service did not judge readings in time."],
  alert: ["alert", "The service did not store alerts in time."],
  shown: ["shown", "No page and no program asked for incidents."],
  told: ["told", "No watch told anybody: look at its log and at monitor-gateway watch test."],
  taken: ["taken", "Nobody took the incident within 30 minutes."],
};

export default function DrillsPage() {
  useTitle("Drills");
  const { data, error, refetch } = useQuery({
    queryKey: key, queryFn: () => unwrap(api.GET("/api/v1/drills", { params: { query: { limit: 50 } } })),
    refetchInterval: ({ state }) => (state.data?.some((drill) => drill.state === "running") ? 2000 : 60_000),
  });
  const [starting, setStarting] = useState(false);
  return (
    <>
      <div class="heading">
        <h1>Drills</h1>
        <May role="operator">
          <button type="button" class="primary" onClick={() => setStarting(true)}>Start a drill</button>
        </May>
      </div>
      <p class="lead">
        A drill goes the way of a reading that breaks a rule, until somebody takes its incident. It says at which stage
        the alarm would have been lost. No reading is stored.
      </p>
      {error && <Failure error={error} retry={() => void refetch()} />}
      {!data && !error && <Loading what="drills" />}
      {data?.length === 0 && <Empty title="No drill yet"><p>Do the alarms work? Start one to find out.</p></Empty>}
      {data?.map((drill) => <Shown key={drill.id} drill={drill} />)}
      {starting && <Start onClose={() => setStarting(false)} />}
    </>
  );
}

function Shown({ drill }: { drill: Drill }) {
  const failed = drill.failed_stage as Stage | null;
  return (
    <section class="card" aria-label={`Drill ${drill.id}`}>
      <h2>
        {drill.room_name}, {drill.sensor_name}{" "}
        <span class="badge">
          <StatusMark kind={drill.state === "passed" ? "ok" : drill.state === "failed" ? "alert" : "waiting"} />
          {failed ? `Failed: not ${stages[failed][0]}` : drill.state === "passed" ? "Passed" : "Running"}
        </span>
      </h2>
      <p class="hint">
        Started <Timestamp at={drill.started_at} /> by {drill.started_by}{drill.on_site && ", sent on site"}.{" "}
        {drill.incident_id !== null && <Link href={`/incidents/${drill.incident_id}`}>Its incident</Link>}
      </p>
      {failed && <p>{stages[failed][1]}</p>}
      <ol class="plain">
        {drill.stages.map(({ stage, at }) => (
          <li key={stage}>
            <StatusMark kind={at ? "ok" : stage === failed ? "alert" : "waiting"} />{" "}
            {stages[stage][0]}{at && <>, {after(drill.started_at, at)}</>}
          </li>
        ))}
      </ol>
    </section>
  );
}

const after = (start: string, at: string) => {
  const seconds = Math.max(0, (Date.parse(at) - Date.parse(start)) / 1000);
  return seconds < 10 ? `${seconds.toFixed(1)} s`
    : seconds < 120 ? `${Math.round(seconds)} s` : plural(Math.round(seconds / 60), "minute");
};

function Start({ onClose }: { onClose: () => void }) {
  const { data: overview } = useOverview();
  const { data: rules } = useRules();
  const [sensorID, setSensorID] = useState("");
  const [ruleID, setRuleID] = useState(0);
  const [onSite, setOnSite] = useState("no");
  const [code, setCode] = useState<string | null>(null);
  if (code !== null) {
    return (
      <Secret title="Send it on site" text={`sudo monitor-gateway drill ${code}`} onClose={onClose}>
        <p>Run this on the gateway's machine within 5 minutes.</p>
      </Secret>
    );
  }
  if (!overview || !rules) {
    return <Dialog title="Start a drill" onClose={onClose}><Loading what="sensors and rules" /></Dialog>;
  }
  // The one that is shown stays, though it falls silent meanwhile.
  const sensors = overview.sensors.filter(({ id, reports }) => reports || id === sensorID);
  const sensor = sensors.find(({ id }) => id === sensorID) ?? sensors[0];
  if (sensor && sensor.id !== sensorID) setSensorID(sensor.id);
  const applies = rules.filter((rule) =>
    rule.enabled && (!rule.room_id || rule.room_id === sensor?.room_id)
      && (!rule.sensor_id || rule.sensor_id === sensor?.id));
  const rule = applies.find(({ id }) => id === ruleID) ?? applies[0];
  if (rule && rule.id !== ruleID) setRuleID(rule.id);
  if (!sensor || !rule) {
    return <Dialog title="Start a drill" onClose={onClose}><p>No sensor reports, or no rule covers it.</p></Dialog>;
  }
  const room = (id: number) => overview.rooms.find((candidate) => candidate.id === id)?.name ?? "";
  return (
    <Dialog title="Start a drill" onClose={onClose}>
      <Form
        action="Start" onCancel={onClose}
        onSubmit={async () => {
          const body = { rule_id: rule.id, sensor_id: sensor.id, on_site: onSite === "yes" };
          const started = await unwrap(api.POST("/api/v1/drills", { body }));
          await refresh(key);
          if (started.code !== null) setCode(started.code);
          else onClose();
        }}
      >
        <Select label="Sensor" value={sensor.id} onChange={setSensorID}
          options={sensors.map(({ id, name, room_id }) => [id, `${room(room_id)}, ${name}`] as const)} />
        <Select label="Rule to test" value={rule.id} onChange={setRuleID}
          options={applies.map((candidate) => [candidate.id, condition(candidate)] as const)} />
        <Select label="From" value={onSite} onChange={setOnSite}
          options={[["no", "The service"], ["yes", "The gateway: a command to run on site"]]} />
        <p class="hint">People are told as if it were real; the message says that it is a drill.</p>
      </Form>
    </Dialog>
  );
}
