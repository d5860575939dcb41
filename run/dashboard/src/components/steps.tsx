// The way to a room that tells when it is too hot: which steps are done, on the page of Setup
// and, until all are, on Now.
import { Link } from "wouter-preact";
import { useGateways, useRules } from "../api/queries";
import type { Overview } from "../logic/overview";

export interface Steps { gateway: boolean; sensors: boolean; limits: boolean; watch: boolean }

/** What the overview says of them. Readings come through a gateway, enrolled or not. */
export function stepsOf({ sensors, limits, watched }: Overview): Steps {
  return {
    gateway: sensors.some(({ timestamp }) => timestamp), sensors: sensors.length > 0,
    // The two thresholds are there from the beginning.
    limits: limits.some((list) => list?.[2]), watch: watched,
  };
}

/** The steps that are done: a gateway may be enrolled, and limits be chosen, before a sensor shows it. */
export function useSteps(overview: Overview): Steps {
  const steps = stepsOf(overview);
  const { data: gateways } = useGateways();
  const { data: rules } = useRules();
  return {
    ...steps,
    gateway: steps.gateway || !!gateways?.some(({ revoked, enrolled_at }) => !revoked && enrolled_at),
    limits: steps.limits || !!rules?.some(({ threshold }) => !threshold),
  };
}

/** The way to the checklist, until all is done. Only what the overview cannot say is asked for. */
export function FirstSteps({ overview }: { overview: Overview }) {
  const steps = stepsOf(overview);
  return steps.gateway && steps.limits ? <Way steps={steps} /> : <Asked overview={overview} />;
}

function Asked({ overview }: { overview: Overview }) {
  return <Way steps={useSteps(overview)} />;
}

function Way({ steps }: { steps: Steps }) {
  const all = Object.values(steps);
  const done = all.filter(Boolean);
  return done.length === all.length ? null : <Link href="/setup">Setup: {done.length} of {all.length} done</Link>;
}
